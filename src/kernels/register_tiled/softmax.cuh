// SPDX-License-Identifier: MIT
// The online softmax of a micro-tile, in base 2: exp2 is one instruction.
#pragma once

#include "kernels/common/online_softmax.h"
#include "kernels/common/ptx.cuh"
#include "kernels/register_tiled/micro_tile.cuh"
#include "kernels/register_tiled/ptx.cuh"

namespace cuflash::register_tiled {

template <int kRows>
struct RowStates {
  float reference[kRows];  // what is subtracted from scores: a maximum, at most kMaxGrowth below the true one
  float sum[kRows];        // of 2^(s - reference); this thread's part until finish()

  __device__ RowStates() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      reference[i] = kNegativeInfinity<float>;
      sum[i] = 0.0f;
    }
  }

  // Turns scores, in base 2, into weights 2^(score - reference) and sums them. Returns whether a reference of the warp has
  // moved: then what was accumulated is to be multiplied by `rescale`. A NaN score makes its own weight NaN, and with it
  // the row's sum; it does not become the reference.
  template <int kLanes, int kCols>
  __device__ __forceinline__ bool exponentiate(float (&p)[kRows][kCols], float (&rescale)[kRows]) {
    bool moved = false;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float highest = kNegativeInfinity<float>;
#pragma unroll
      for (int j = 0; j < kCols; ++j) highest = fmaxf(highest, p[i][j]);
      highest = reduce_over_lanes<kLanes>(highest, [](float x, float y) { return fmaxf(x, y); });
      const bool far = highest - reference[i] > kMaxGrowth;
      const float next = far ? highest : reference[i];
      moved |= far;
      const float shift = next == kNegativeInfinity<float> ? 0.0f : next;
      rescale[i] = exp2_to_zero(reference[i] - shift);
      reference[i] = next;
      float block_sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kCols; ++j) {
        p[i][j] = exp2_to_zero(p[i][j] - shift);
        block_sum += p[i][j];
      }
      sum[i] = fmaf(sum[i], rescale[i], block_sum);
    }
    return __any_sync(kFullWarp, moved);
  }

  template <int kLanes>
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      sum[i] = reduce_over_lanes<kLanes>(sum[i], [](float x, float y) { return x + y; });
    }
  }

  // The sum is 0 only if no key was seen, or none with a score above -inf: o = 0, lse = -inf.
  __device__ float inverse_sum(int i) const { return sum[i] == 0.0f ? 0.0f : 1.0f / sum[i]; }
  __device__ float lse(int i) const {
    return sum[i] == 0.0f ? kNegativeInfinity<float> : kLn2 * (reference[i] + log2f(sum[i]));
  }
};

}  // namespace cuflash::register_tiled
