// SPDX-License-Identifier: MIT
// The memory that a call touches, and whether an output overlaps something else of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "status.h"

namespace cuflash {

struct MemoryRange {
  const char* name;
  uintptr_t first;  // address of the first byte
  uintptr_t last;   // address of the last byte
  bool is_output;
  bool dense;  // no gaps between its elements
};

class MemoryRanges {
 public:
  void add(const MemoryRange& range) { ranges_[count_++] = range; }

  // No output overlaps anything else, as far as the ranges prove it: two that begin at one address do, and one without
  // gaps must not hold the first or the last byte of another. (Slices of one packed tensor interleave: no overlap.)
  Status check() const;

  // The same for one more range, an output.
  Status check_output(const MemoryRange& output) const;

 private:
  std::array<MemoryRange, 15> ranges_{};  // backward: q, k, v, o, dout, dq, dk, dv, lse, dlse and five small inputs
  size_t count_ = 0;
};

}  // namespace cuflash
