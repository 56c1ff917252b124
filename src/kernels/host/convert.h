// SPDX-License-Identifier: MIT
// Elements of tensors to double and back. Reading is exact; writing rounds once, to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cuflash::host {

inline double to_double(float x) { return x; }
inline double to_double(__half x) { return __half2float(x); }
inline double to_double(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to odd: what is not exact is cut and its last bit set, as a mark of "a little more than this". Rounding the
// result to a format that is at least two bits narrower gives what rounding x itself to it would; through a float that
// was rounded to nearest it would not, since x just above the middle of two halves may become that middle.
inline float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  if (std::isnan(x) || static_cast<double>(nearest) == x) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const bool rounded_up = std::abs(static_cast<double>(nearest)) > std::abs(x);
  if (rounded_up) --bits;  // the next float towards zero; of infinity, the largest float
  return std::bit_cast<float>(bits | 1);
}

template <class T>
T from_double(double x);

template <>
inline float from_double<float>(double x) {
  return static_cast<float>(x);
}

template <>
inline __half from_double<__half>(double x) {
  return __float2half_rn(round_to_odd(x));
}

template <>
inline __nv_bfloat16 from_double<__nv_bfloat16>(double x) {
  return __float2bfloat16_rn(round_to_odd(x));
}

}  // namespace cuflash::host
