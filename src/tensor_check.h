// SPDX-License-Identifier: MIT
// Checks the memory arguments of one call: addresses, strides, sizes, and that outputs overlap nothing.
#pragma once

#include <cstdint>

#include "memory_ranges.h"
#include "problem.h"
#include "status.h"

namespace cuflash {

struct Extents {
  int64_t batch;
  int64_t rows;
  int64_t heads;
  int64_t dim;

  constexpr bool empty() const { return batch == 0 || rows == 0 || heads == 0; }
};

class TensorCheck {
 public:
  // With pointers_required false, null data pointers pass and count as aligned.
  TensorCheck(cuflashDataType_t dtype, bool pointers_required)
      : element_bytes_(dtype_size(dtype)), pointers_required_(pointers_required) {}

  Status input(const char* name, const ConstTensor& tensor, const Extents& extents);
  Status output(const char* name, const Tensor& tensor, const Extents& extents);

  // fp32 values, contiguous, one per query row.
  Status row_values(const char* name, const float* data, int64_t count);
  Status optional_row_values(const char* name, const float* data, int64_t count, bool is_output);

  // Lengths, offsets or slopes: `count` elements of 4 bytes, or null.
  Status small_input(const char* name, const void* data, int64_t count);

  Status no_overlap() const { return memory_.check(); }
  const MemoryRanges& memory() const { return memory_; }

  // An address or stride of a tensor is no multiple of 16 bytes.
  bool unaligned() const { return unaligned_; }

 private:
  Status add(const char* name, const ConstTensor& tensor, const Extents& extents, bool is_output);
  Status add_words(const char* name, const void* data, int64_t count, bool is_output);

  int64_t element_bytes_;
  bool pointers_required_;
  bool unaligned_ = false;
  MemoryRanges memory_;
};

}  // namespace cuflash
