// SPDX-License-Identifier: MIT
// Exponentials in base 2: a softmax that keeps its scores in base 2 needs one instruction for a weight (PTX ISA, ex2).
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/base2.h"

namespace cuflash {

// 2^x to 2 units in the last place; 0 for -inf, NaN for NaN. Results below the normal numbers become 0: beside a row's
// largest weight, 1 or more, they are nothing.
__device__ __forceinline__ float exp2_to_zero(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The same with denormal results.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace cuflash
