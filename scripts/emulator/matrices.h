// SPDX-License-Identifier: MIT
// What the emulated instructions share: elements of matrices as their bits, and sums of four neighbours.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

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

// red.global.add.v4.f32
inline void add_quad(float* to, float x, float y, float z, float w) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0) fault("four sums are not at a multiple of 16 bytes");
  to[0] += x;
  to[1] += y;
  to[2] += z;
  to[3] += w;
}

}  // namespace emulator
