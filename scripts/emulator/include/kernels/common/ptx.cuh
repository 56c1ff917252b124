// SPDX-License-Identifier: MIT
// In place of src/kernels/common/ptx.cuh, which says what the functions do.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "device.h"
#include "kernels/common/base2.h"
#include "tensor_copies.h"

namespace cuflash {

// The instruction is exact to 2 units in the last place.
inline float exp2_approx(float x) { return std::exp2(x); }

inline float exp2_to_zero(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;
}

inline uint32_t shared_address(const void* pointer) { return emulator::shared_address(pointer); }

inline void store_pair(uint32_t to, uint32_t pair) { emulator::write_shared(to, &pair, sizeof(pair)); }

inline uint64_t pair_of(const float (&x)[2]) {
  uint64_t pair;
  std::memcpy(&pair, x, sizeof(pair));
  return pair;
}
inline void split_pair(float (&x)[2], uint64_t pair) { std::memcpy(x, &pair, sizeof(x)); }

}  // namespace cuflash
