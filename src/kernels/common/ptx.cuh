// SPDX-License-Identifier: MIT
// Instructions of more than one room (PTX ISA: ex2, st). A softmax that keeps its scores in base 2 needs one instruction for
// a weight.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

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

// Addresses of shared memory as 32-bit integers: offsets inside of a tile are added to them without conversion.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Two packed elements to shared memory.
__device__ __forceinline__ void store_pair(uint32_t to, uint32_t pair) {
  asm volatile("st.shared.b32 [%0], %1;" : : "r"(to), "r"(pair) : "memory");
}

// Two floats in neighbouring registers, as operands of 64 bits are.
__device__ __forceinline__ uint64_t pair_of(const float (&x)[2]) {
  uint64_t pair;
  asm("mov.b64 %0, {%1, %2};" : "=l"(pair) : "f"(x[0]), "f"(x[1]));
  return pair;
}

__device__ __forceinline__ void split_pair(float (&x)[2], uint64_t pair) {
  asm volatile("mov.b64 {%0, %1}, %2;" : "=f"(x[0]), "=f"(x[1]) : "l"(pair));
}

}  // namespace cuflash
