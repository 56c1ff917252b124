// SPDX-License-Identifier: MIT
// What the emulated instructions on matrices share: elements as their bits, and the conversions of the softmax.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "device.h"

namespace emulator {

inline float to_float(__half x) { return __half2float(x); }
inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
float float_of_bits(uint16_t bits) {
  T x;
  std::memcpy(static_cast<void*>(&x), &bits, sizeof(bits));
  return to_float(x);
}

template <class T>
uint16_t bits_of(T x) {
  uint16_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// ex2.approx without and with .ftz; the instructions are exact to 2 units in the last place.
inline float exp2_approx(float x) { return std::exp2(x); }
inline float exp2_to_zero(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;
}

// red.global.add.v4.f32
inline void add_quad(float* to, float x, float y, float z, float w) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0) fault("four sums are not at a multiple of 16 bytes");
  to[0] += x;
  to[1] += y;
  to[2] += z;
  to[3] += w;
}

}  // namespace emulator
