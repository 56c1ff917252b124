// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/kernel_args.h"

namespace cuflash {

// Whether every row of a tensor begins at a multiple of 16 bytes, the widest access there is.
template <class TensorT>
bool rows_are_aligned(const TensorT& tensor, int64_t element_bytes) {
  constexpr int64_t kBytes = 16;
  const auto is_multiple = [&](int64_t stride) { return stride % (kBytes / element_bytes) == 0; };
  return reinterpret_cast<uintptr_t>(tensor.data) % kBytes == 0 && is_multiple(tensor.batch_stride) &&
         is_multiple(tensor.row_stride) && is_multiple(tensor.head_stride);
}

}  // namespace cuflash
