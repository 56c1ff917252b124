// SPDX-License-Identifier: MIT
// The online softmax of fragments (fragment.cuh).
#pragma once

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
  // factor is put into references and scores, and is 1 from then on.
  template <int kNTiles>
  __device__ __forceinline__ void move(
      float (&scores)[kMTiles][kNTiles][4], const float (&highest)[kRows], float& factor, float (&rescale)[kRows]
  ) {
    float next[kRows];
    bool huge = false;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      next[i] = is_far(i, highest[i], factor) ? highest[i] : reference[i];
      huge |= next[i] > kNegativeInfinity<float> && fabsf(next[i] * factor) > kHuge;
    }
    if (factor != 1.0f && __any_sync(kFullWarp, huge)) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        reference[i] *= factor;
        next[i] *= factor;
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
          scores[i / 2][n][i % 2 * 2] *= factor;
          scores[i / 2][n][i % 2 * 2 + 1] *= factor;
        }
      }
      factor = 1.0f;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      rescale[i] = reference[i] == next[i] ? 1.0f : exp2_to_zero((reference[i] - next[i]) * factor);
      reference[i] = next[i];
      sum[i] *= rescale[i];
    }
  }

  // Turns scores into weights 2^(factor (score - reference)) and sums them. A NaN score makes its own weight NaN, and with
  // it the row's sum.
  template <int kNTiles>
  __device__ __forceinline__ void exponentiate(float (&p)[kMTiles][kNTiles][4], float factor) {
    float shift[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      shift[i] = reference[i] == kNegativeInfinity<float> ? 0.0f : -reference[i] * factor;
    }
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = p[i / 2][n][i % 2 * 2 + e];
          x = exp2_to_zero(fmaf(x, factor, shift[i]));
          sum[i] += x;
        }
      }
    }
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

}  // namespace cuflash
