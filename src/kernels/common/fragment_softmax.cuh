// SPDX-License-Identifier: MIT
// The online softmax of fragments (fragment.cuh).
#pragma once

#include <cfloat>
#include <climits>

#include "kernels/common/fragment.cuh"
#include "kernels/common/online_softmax.h"
#include "kernels/common/ptx.cuh"
#include "kernels/common/warp.h"

namespace cuflash {

// factor * score - factor * reference is formed with one rounding, after that of the reference's product. Up to here this
// moves all weights of a row by the same small factor, which cancels; beyond, scores are multiplied, and rounded, first.
inline constexpr float kHuge = 0x1p24f;

// Of the 16 * kMTiles rows of a warp. Row i of a lane is row l / 4 + 8 i of the warp.
template <int kMTiles>
struct RowStates {
  static constexpr int kRows = 2 * kMTiles;
  float reference[kRows];  // what is subtracted from scores: a maximum, at most kMaxGrowth below the true one
  float sum[kRows];        // of 2^(factor (s - reference)); this lane's part until finish()

  __device__ __forceinline__ RowStates() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      reference[i] = kNegativeInfinity<float>;
      sum[i] = 0.0f;
    }
  }

  // The highest score of each row, and whether one of the warp is so far above its reference that this must move. Scores are
  // to be multiplied by factor > 0. NaN is no highest score.
  template <int kNTiles>
  __device__ __forceinline__ bool look(
      const float (&scores)[kMTiles][kNTiles][4], float factor, float (&highest)[kRows]
  ) const {
    bool moves = false;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      highest[i] = kNegativeInfinity<float>;
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
        highest[i] = fmaxf(highest[i], fmaxf(scores[i / 2][n][i % 2 * 2], scores[i / 2][n][i % 2 * 2 + 1]));
      }
      highest[i] = reduce_quad(highest[i], [](float x, float y) { return fmaxf(x, y); });
      moves |= is_far(i, highest[i], factor);
    }
    return __any_sync(kFullWarp, moves);
  }

  __device__ __forceinline__ bool is_far(int i, float highest, float factor) const {
    return (highest - reference[i]) * factor > kMaxGrowth;
  }

  // Moves references up to what look() found: what was accumulated is to be multiplied by `rescale`. If a score is huge, the
  // factor is put into references, and is 1 from then on; scores are to be multiplied by what is returned.
  __device__ __forceinline__ float move(const float (&highest)[kRows], float& factor, float (&rescale)[kRows]) {
    float next[kRows];
    bool huge = false;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      next[i] = is_far(i, highest[i], factor) ? highest[i] : reference[i];
      huge |= fabsf(next[i]) <= FLT_MAX && fabsf(next[i] * factor) > kHuge;  // of infinity nothing is to be had
    }
    float put = 1.0f;
    if (factor != 1.0f && __any_sync(kFullWarp, huge)) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        reference[i] *= factor;
        next[i] *= factor;
      }
      put = factor;
      factor = 1.0f;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      rescale[i] = reference[i] == next[i] ? 1.0f : exp2_to_zero((reference[i] - next[i]) * factor);
      reference[i] = next[i];
      sum[i] *= rescale[i];
    }
    return put;
  }

  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) sum[i] = reduce_quad(sum[i], [](float x, float y) { return x + y; });
  }

  // The sum is 0 only if no key was seen, or none with a score above -inf: o = 0, lse = -inf.
  __device__ __forceinline__ float inverse_sum(int i) const { return sum[i] == 0.0f ? 0.0f : __fdividef(1.0f, sum[i]); }
  // Of a row that is known at run time: registers have no index.
  __device__ __forceinline__ float lse(int row, float factor) const {
    float own_reference = reference[0];
    float own_sum = sum[0];
#pragma unroll
    for (int i = 1; i < kRows; ++i) {
      if (i == row) own_reference = reference[i];
      if (i == row) own_sum = sum[i];
    }
    if (own_sum == 0.0f) return kNegativeInfinity<float>;
    return kLn2 * (__fmul_rn(own_reference, factor) + log2f(own_sum));
  }
};

// Up to which score a row's reference may stay. Floats are compared as integers, three at a time where a GPU can: the order is
// the same unless both are negative. So a row whose limit is negative has none, and the long look (RowStates::look())
// decides; NaN is above every limit or, with its sign set, below: it reaches the row's sum either way.
template <int kMTiles>
struct ScoreLimits {
  int32_t limit[2 * kMTiles];

  __device__ __forceinline__ ScoreLimits() {
#pragma unroll
    for (int32_t& row : limit) row = INT_MIN;
  }

  __device__ __forceinline__ void follow(const RowStates<kMTiles>& state, float factor) {
    const float growth = fminf(__fdividef(kMaxGrowth, factor), FLT_MAX);  // -inf stays -inf
#pragma unroll
    for (int i = 0; i < 2 * kMTiles; ++i) {
      const int32_t bits = __float_as_int(state.reference[i] + growth);
      limit[i] = bits < 0 ? INT_MIN : bits;
    }
  }

  // Whether no score of the warp's rows is above their limits, nor equal.
  template <int kNTiles>
  __device__ __forceinline__ bool hold(const float (&scores)[kMTiles][kNTiles][4]) const {
    bool below = true;
#pragma unroll
    for (int i = 0; i < 2 * kMTiles; ++i) {
      int32_t highest[2] = {INT_MIN, INT_MIN};  // two, since one would wait for itself
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
        const int32_t left = __float_as_int(scores[i / 2][n][i % 2 * 2]);
        const int32_t right = __float_as_int(scores[i / 2][n][i % 2 * 2 + 1]);
        highest[n % 2] = __vimax3_s32(highest[n % 2], left, right);
      }
      below &= max(highest[0], highest[1]) < limit[i];
    }
    return __all_sync(kFullWarp, below);
  }
};

// The online softmax of a tile: references are settled, then scores become weights, a part of a step's at a time.
template <int kMTiles>
struct TileSoftmax {
  static constexpr int kRows = 2 * kMTiles;
  RowStates<kMTiles> rows;
  ScoreLimits<kMTiles> limits;
  float factor;  // from what scores are in registers to those in base 2
  // -factor * reference of pairs of rows; 0 while there is none, and all scores are -inf. Neighbouring registers are of two
  // banks: so each shift is read once for many scores, and registers are left to the products. With shifts of one bank,
  // which is what ptxas may choose otherwise, the tensor cores of sm_90 are busy for 89 instead of 97 % of the time at
  // head_dim 128.
  uint64_t shifts[kMTiles] = {};
  float rescale[kRows];  // behind a move: what was accumulated is to be multiplied by it

  __device__ __forceinline__ explicit TileSoftmax(float from_registers) : factor(from_registers) {}

  // Moves references if scores are far above them; whether it did. If that puts the factor into references, later scores have
  // to come multiplied, or what becomes of them is wrong.
  template <int kNTiles>
  __device__ __forceinline__ bool settle(float (&scores)[kMTiles][kNTiles][4]) {
    return !limits.hold(scores) && settle_first(scores);
  }
  // The same for the first scores, which have no limit yet.
  template <int kNTiles>
  __device__ __forceinline__ bool settle_first(float (&scores)[kMTiles][kNTiles][4]) {
    float highest[kRows];
    if (!rows.look(scores, factor, highest)) return false;
    const float put = move(highest);
    if (put != 1.0f) for_each_sum(scores, [&](float& x, int, int) { x *= put; });
    return true;
  }

  // Moves references up to what look() found; scores are to be multiplied by what is returned.
  __device__ __forceinline__ float move(const float (&highest)[kRows]) {
    const float put = rows.move(highest, factor, rescale);
    limits.follow(rows, factor);
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      float shift[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float reference = rows.reference[2 * m + i];
        shift[i] = reference == kNegativeInfinity<float> ? 0.0f : -reference * factor;
      }
      shifts[m] = pair_of(shift);
    }
    return put;
  }

  // Scores of blocks of 8 keys, [kFrom, kEnd), become weights 2^(factor (score - reference)), and are summed. A NaN score
  // makes its own weight NaN, and with it the row's sum.
  template <int kFrom, int kEnd, int kNTiles>
  __device__ __forceinline__ void weigh(float (&scores)[kMTiles][kNTiles][4]) {
    float shift[kMTiles][2];
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) split_pair(shift[m], shifts[m]);
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int n = kFrom; n < kEnd; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][n][i] = exp2_to_zero(fmaf(scores[m][n][i], factor, shift[m][i / 2]));
      }
    }
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int n = kFrom; n < kEnd; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) rows.sum[2 * m + i / 2] += scores[m][n][i];
      }
    }
  }
};

}  // namespace cuflash
