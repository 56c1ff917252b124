// SPDX-License-Identifier: MIT
// In place of src/kernels/sm90/wgmma.cuh, which says what the functions do.
#pragma once

#include <cstdint>

#include "products.h"

namespace cuflash::sm90 {

inline void begin_products() {}
inline void commit_products() { emulator::commit_products(); }
template <int kPending>
void wait_products() {
  emulator::wait_products(kPending);
}

template <int kBlocks>
void pin(float (&)[kBlocks][4]) {}
template <int kBlocks>
void pin(uint32_t (&)[kBlocks][4]) {}

template <class T, int kBlocks>
void multiply(float (&d)[kBlocks][4], uint64_t a, uint64_t b, bool add) {
  emulator::multiply<T>({.sums = d[0], .blocks = kBlocks, .a_descriptor = a, .b_descriptor = b, .add = add});
}
template <class T, int kBlocks>
void multiply(float (&d)[kBlocks][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  emulator::multiply<T>({.sums = d[0], .blocks = kBlocks, .a = a, .b_descriptor = b, .columns = true, .add = add});
}
template <class T, int kBlocks>
void multiply_columns(float (&d)[kBlocks][4], uint64_t a, uint64_t b, bool add) {
  emulator::multiply<T>(
      {.sums = d[0], .blocks = kBlocks, .a_descriptor = a, .b_descriptor = b, .columns = true, .add = add}
  );
}

}  // namespace cuflash::sm90
