// SPDX-License-Identifier: MIT
#pragma once

#include "cuflash/cuflash.h"
#include "kernels/common/numeric_traits.cuh"

namespace cuflash {

// Calls f.operator()<T>() with the C++ type of a dtype: for kernels that serve all types with one instance, since only
// their loads and stores differ.
template <class F>
__device__ __forceinline__ void with_element(cuflashDataType_t dtype, F&& f) {
  switch (dtype) {
    case CUFLASH_R_16F: f.template operator()<__half>(); break;
    case CUFLASH_R_16BF: f.template operator()<__nv_bfloat16>(); break;
    default: f.template operator()<float>(); break;
  }
}

}  // namespace cuflash
