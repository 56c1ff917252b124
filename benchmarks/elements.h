// SPDX-License-Identifier: MIT
// Random input, the same numbers on host and GPU, and elements of every dtype as float.
#pragma once

#include <cmath>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuflash/cuflash.h"

#if defined(__CUDACC__)
#define CUFLASH_BENCH_HD __host__ __device__ inline
#else
#define CUFLASH_BENCH_HD inline
#endif

namespace cuflash::bench {

CUFLASH_BENCH_HD uint64_t mix(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Element `index` of an infinite standard normal sequence (Box and Muller 1958).
CUFLASH_BENCH_HD float random_normal(uint64_t seed, uint64_t index) {
  const uint64_t bits = mix(mix(seed) + (index + 1) * 0x9e3779b97f4a7c15u);
  const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;  // in (0, 1)
  const float angle = static_cast<float>(bits & 0xffffff) * 0x1p-24f * 6.2831853f;
  return sqrtf(-2.0f * logf(u)) * cosf(angle);
}

CUFLASH_BENCH_HD float to_float(float x) { return x; }
CUFLASH_BENCH_HD float to_float(__half x) { return __half2float(x); }
CUFLASH_BENCH_HD float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
CUFLASH_BENCH_HD T from_float(float x);
template <>
CUFLASH_BENCH_HD float from_float<float>(float x) {
  return x;
}
template <>
CUFLASH_BENCH_HD __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
CUFLASH_BENCH_HD __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Calls function with a null pointer whose type is that of the elements.
template <class Function>
void with_element_type(cuflashDataType_t dtype, const Function& function) {
  switch (dtype) {
    case CUFLASH_R_32F: return function(static_cast<float*>(nullptr));
    case CUFLASH_R_16F: return function(static_cast<__half*>(nullptr));
    default: return function(static_cast<__nv_bfloat16*>(nullptr));
  }
}

}  // namespace cuflash::bench
