// SPDX-License-Identifier: MIT
// Products of warpgroups on tensor cores (PTX ISA, wgmma), which run on their own. They are computed when they are issued,
// so that operands must be there; the sums hold poison until they are waited for; and if an operand changes before, the
// sums are poison for good.
#pragma once

#include <cstdint>

namespace emulator {

// What a lane brings to a product of 64 rows by 8 * blocks columns, 16 deep. Operand a lies in registers, laid out as that
// of mma.m16n8k16, or at a descriptor.
struct Product {
  float* sums;  // 4 * blocks
  int blocks;
  const uint32_t* a = nullptr;  // 4
  uint64_t a_descriptor = 0;
  uint64_t b_descriptor;
  bool columns = false;  // what lies at descriptors has its depth outermost, and not contiguous
  bool add;              // to the sums as they are
};

template <class T>
void multiply(const Product& product);

void commit_products();
void wait_products(unsigned pending_groups);

// Refuses what has not ended.
void end_block_of_products();

}  // namespace emulator
