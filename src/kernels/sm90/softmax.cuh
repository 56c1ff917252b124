// SPDX-License-Identifier: MIT
// What the room adds to the online softmax of fragments: a look at a step's scores that costs half an instruction each.
#pragma once

#include <climits>

#include "kernels/common/fragment_softmax.cuh"
#include "kernels/common/warp.h"

namespace cuflash::sm90 {

// Up to which score a row's reference may stay. Floats are compared as integers, three at a time: the order is the same
// unless both are negative. So a row whose limit is negative has none, and the long look (RowStates::look()) decides; NaN
// is above every limit or, with its sign set, below: it reaches the row's sum either way.
struct ScoreLimits {
  int32_t limit[2];

  __device__ __forceinline__ void follow(const RowStates<1>& state, float factor) {
    const float growth = __fdividef(kMaxGrowth, factor);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t bits = __float_as_int(state.reference[i] + growth);
      limit[i] = bits < 0 ? INT_MIN : bits;
    }
  }

  // Whether no score of the warp's rows is above their limits, nor equal.
  template <int kNTiles>
  __device__ __forceinline__ bool hold(const float (&scores)[1][kNTiles][4]) const {
    bool below = true;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int32_t highest[2] = {INT_MIN, INT_MIN};  // two, since one would wait for itself
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
        const int32_t left = __float_as_int(scores[0][n][2 * i]);
        const int32_t right = __float_as_int(scores[0][n][2 * i + 1]);
        highest[n % 2] = __vimax3_s32(highest[n % 2], left, right);
      }
      below &= max(highest[0], highest[1]) < limit[i];
    }
    return __all_sync(kFullWarp, below);
  }
};

}  // namespace cuflash::sm90
