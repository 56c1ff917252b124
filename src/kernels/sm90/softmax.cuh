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

// The online softmax of a tile: references are settled, then scores become weights, a part of a step's at a time.
struct TileSoftmax {
  RowStates<1> rows;
  ScoreLimits limits = {INT_MIN, INT_MIN};
  float factor;  // from what scores are in registers to those in base 2
  // -factor * reference of both rows; 0 while there is none, and all scores are -inf. Neighbouring registers are of two banks:
  // so each shift is read once for many scores, and registers are left to the products. With shifts of one bank, which is
  // what ptxas may choose otherwise, tensor cores are busy for 89 instead of 97 % of the time at head_dim 128.
  uint64_t shifts = 0;
  float rescale[2];  // behind a move: what was accumulated is to be multiplied by it

  __device__ __forceinline__ explicit TileSoftmax(float from_registers) : factor(from_registers) {}

  // Moves references if scores are far above them; whether it did.
  template <int kNTiles>
  __device__ __forceinline__ bool settle(float (&scores)[1][kNTiles][4]) {
    return !limits.hold(scores) && settle_first(scores);
  }
  // The same for the first scores, which have no limit yet.
  template <int kNTiles>
  __device__ __forceinline__ bool settle_first(float (&scores)[1][kNTiles][4]) {
    float highest[2];
    if (!rows.look(scores, factor, highest)) return false;
    rows.move(scores, highest, factor, rescale);
    limits.follow(rows, factor);
    float shift[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      shift[i] = rows.reference[i] == kNegativeInfinity<float> ? 0.0f : -rows.reference[i] * factor;
    }
    shifts = pair_of(shift);
    return true;
  }

  // Scores of blocks of 8 keys, [kFrom, kEnd), become weights.
  template <int kFrom, int kEnd, int kNTiles>
  __device__ __forceinline__ void weigh(float (&scores)[1][kNTiles][4]) {
    float shift[2];
    split_pair(shift, shifts);
#pragma unroll
    for (int n = kFrom; n < kEnd; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[0][n][i] = exp2_to_zero(fmaf(scores[0][n][i], factor, shift[i / 2]));
    }
#pragma unroll
    for (int n = kFrom; n < kEnd; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) rows.sum[i / 2] += scores[0][n][i];
    }
  }
};

}  // namespace cuflash::sm90
