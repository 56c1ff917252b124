// SPDX-License-Identifier: MIT
// From a dtype at run time to a C++ type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuflash/cuflash.h"

namespace cuflash {

template <class T>
struct TypeTag {
  using Type = T;
};

// Calls f(TypeTag<T>{}) with the C++ type of a validated dtype.
template <class F>
auto with_dtype(cuflashDataType_t dtype, F&& f) {
  switch (dtype) {
    case CUFLASH_R_16F: return f(TypeTag<__half>{});
    case CUFLASH_R_16BF: return f(TypeTag<__nv_bfloat16>{});
    default: return f(TypeTag<float>{});
  }
}

// The same for rooms that serve the 16-bit types alone.
template <class F>
auto with_16bit_dtype(cuflashDataType_t dtype, F&& f) {
  if (dtype == CUFLASH_R_16F) return f(TypeTag<__half>{});
  return f(TypeTag<__nv_bfloat16>{});
}

}  // namespace cuflash
