// SPDX-License-Identifier: MIT
// Checks the tensors of one call: addresses, strides, sizes, and that outputs overlap nothing.
#pragma once

#include <array>
#include <cstdint>

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

  // No output overlaps anything seen, as far as the arguments prove it: a tensor without gaps must not hold the first or
  // the last element of another. (Slices of one packed tensor interleave, which is not an overlap.)
  Status no_overlap() const;

  // An address or stride of a tensor is no multiple of 16 bytes.
  bool unaligned() const { return unaligned_; }

 private:
  struct Seen {
    const char* name;
    uintptr_t first;  // address of the first element
    uintptr_t last;   // address of the last element
    bool is_output;
    bool dense;
  };

  Status add(const char* name, const ConstTensor& tensor, const Extents& extents, bool is_output);

  int64_t element_bytes_;
  bool pointers_required_;
  bool unaligned_ = false;
  std::array<Seen, 10> seen_{};
  size_t num_seen_ = 0;
};

}  // namespace cuflash
