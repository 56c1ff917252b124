// SPDX-License-Identifier: MIT
// The online softmax of fragments, in base 2. A row's reference and sum are kept once per element of a fragment: then
// nearly everything is done element by element, and no thread needs to know its rows. Over the elements of a row is
// combined only when a reference moves (combine_rows()), and once at the end.
#pragma once

#include <limits>

#include "kernels/common/online_softmax.h"
#include "kernels/common/ptx.cuh"
#include "kernels/wmma/fragment.cuh"
#include "kernels/wmma/ptx.cuh"

namespace cuflash::wmma {

// Up to here a reference is less than 1 away from the product that it was rounded from.
inline constexpr float kExactReference = 1 << 24;

template <int kRows>
struct RowStates {
  // What is subtracted from scores: a maximum, at most kMaxGrowth below the true one. It starts at the lowest number, not
  // at -inf: a score of -inf minus it is -inf.
  Sums reference[kRows];
  Sums sum[kRows];  // of 2^(score - reference), over the columns that are a multiple of 16 apart, until finish()

  // Whether a reference of the warp is so large that what it was rounded by, as a product, matters in an exponent: then
  // all products are rounded before it is subtracted, not behind.
  bool huge = false;

  __device__ __forceinline__ RowStates() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      nv::fill_fragment(reference[i], std::numeric_limits<float>::lowest());
      nv::fill_fragment(sum[i], 0.0f);
    }
  }

  // Turns scores into weights 2^(factor * score - reference), factor > 0, and sums them; scales o when a reference moves. A
  // NaN score makes its own weight NaN, and with it the row's sum; it does not become the reference.
  template <int kCols, int kDims>
  __device__ __forceinline__ void exponentiate(
      Sums (&p)[kRows][kCols], float factor, Sums (&o)[kRows][kDims], float* scratch, int lane
  ) {
    Sums highest[kRows];
    bool far = false;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        float value = p[i][0].x[e];
#pragma unroll
        for (int j = 1; j < kCols; ++j) value = fmaxf(value, p[i][j].x[e]);
        highest[i].x[e] = value;
        far |= is_far(value * factor, reference[i].x[e]);
      }
    }
    if (__any_sync(kFullWarp, far)) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) raise(i, highest[i], factor, o[i], scratch, lane);
      huge = __any_sync(kFullWarp, huge);
    }
    if (huge) {
      for_each_place<kRows, kCols>([&](int i, int j, int e) { p[i][j].x[e] = __fmul_rn(p[i][j].x[e], factor); });
      factor = 1.0f;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
#pragma unroll
        for (int j = 0; j < kCols; ++j) {
          float& x = p[i][j].x[e];
          x = exp2_to_zero(fmaf(x, factor, -reference[i].x[e]));
          sum[i].x[e] += x;
        }
      }
    }
  }

  __device__ __forceinline__ void finish(float* scratch, int lane) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) combine_rows(sum[i], scratch, lane, [](float x, float y) { return x + y; });
  }

  // The sum is 0 only if no key was seen, or none with a score above -inf: o = 0, lse = -inf.
  __device__ float inverse_sum(int i, int e) const { return sum[i].x[e] == 0.0f ? 0.0f : 1.0f / sum[i].x[e]; }
  __device__ float lse(int i, int e) const {
    return sum[i].x[e] == 0.0f ? kNegativeInfinity<float> : kLn2 * (reference[i].x[e] + log2f(sum[i].x[e]));
  }

 private:
  __device__ static bool is_far(float score, float reference) { return score - reference > kMaxGrowth; }

  template <int kDims>
  __device__ __forceinline__ void raise(
      int i, Sums& highest, float factor, Sums (&o)[kDims], float* scratch, int lane
  ) {
    combine_rows(highest, scratch, lane, [](float x, float y) { return fmaxf(x, y); });
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const float score = __fmul_rn(highest.x[e], factor);
      const float old = reference[i].x[e];
      const float next = is_far(score, old) ? score : old;
      const float rescale = exp2_to_zero(old - next);
      reference[i].x[e] = next;
      huge |= next > std::numeric_limits<float>::lowest() && fabsf(next) > kExactReference;
      sum[i].x[e] *= rescale;
#pragma unroll
      for (int j = 0; j < kDims; ++j) o[j].x[e] *= rescale;
    }
  }
};

}  // namespace cuflash::wmma
