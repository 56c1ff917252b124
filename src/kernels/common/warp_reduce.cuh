// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/common/online_softmax.h"
#include "kernels/common/warp.h"

namespace cuflash {

// Butterflies: every lane gets the result, in the same order of operations on every lane.
__device__ inline float warp_sum(float x) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(kFullWarp, x, distance);
  return x;
}

__device__ inline float warp_max_or_nan(float x) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    x = max_or_nan(x, __shfl_xor_sync(kFullWarp, x, distance));
  }
  return x;
}

}  // namespace cuflash
