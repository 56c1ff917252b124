// SPDX-License-Identifier: MIT
// From products to the weights p and ds of the backward pass, in fragments. One side of the pairs runs along rows, the
// other along columns: a lane has rows r + 8 i and columns c + 8 n + e of a tile, e being 0 or 1.
#pragma once

#include "kernels/common/fragment_score.cuh"
#include "kernels/common/mask.h"

namespace cuflash::cp_async {

// Calls f(i, n, e, x, y) for the lane's elements of two arrays of fragments, 16 rows each.
template <int kNTiles, class F>
__device__ __forceinline__ void for_each_pair(float (&xs)[kNTiles][4], float (&ys)[kNTiles][4], F&& f) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) f(i, n, e, xs[n][2 * i + e], ys[n][2 * i + e]);
    }
  }
}

// Products become scores in base 2, and `slopes` are multiplied by d(score) / d(scale * product). `distance` is that of
// ALiBi for the lane's first pair, counted so that it grows along columns; in fp32, exact up to 2^24.
template <int kNTiles>
__device__ __forceinline__ void apply_score_backward(
    float (&products)[kNTiles][4], float (&slopes)[kNTiles][4], const Attention& a, float alibi, float distance
) {
  const float inverse_cap = a.softcap > 0.0f ? 1.0f / a.softcap : 0.0f;
  for_each_pair(products, slopes, [&](int i, int n, int e, float& x, float& y) {
    x *= a.scale;
    if (a.softcap > 0.0f) {
      const float t = tanh_short(x * inverse_cap);
      x = a.softcap * t;
      y *= fmaf(-t, t, 1.0f);
    }
    if (a.alibi_slopes != nullptr) x = fmaf(-alibi, fabsf(distance + static_cast<float>(8 * n + e - 8 * i)), x);
    x *= kLog2e;
  });
}

// At the edge of a mask, or for unusual lse: values of pairs that do not see each other or of a query row that saw nothing
// become 0. shift(i, n, e) is -lse in base 2; `row` and `column` are the lane's first ones in the tile, of whose rows the
// first row_count exist.
template <int kNTiles, class Shift>
__device__ __forceinline__ void hide_pairs(
    float (&values)[kNTiles][4], Shift&& shift, const TileMask& mask, int row_count, int row, int column
) {
  const TileMask own_mask = mask;
  for_each_pair(values, values, [&](int i, int n, int e, float& x, float&) {
    const int r = row + 8 * i;
    const int begin = own_mask.begin + r - column;
    const int end = r < row_count ? min(own_mask.end + r, own_mask.columns) - column : begin;
    const bool sees = (8 * n + e >= begin) & (8 * n + e < end);
    const bool counts = sees & (shift(i, n, e) != -kNegativeInfinity<float>);
    x = counts ? x : 0.0f;
  });
}

// No weight is above 2^raised. NaN stays, as in pair_weights().
template <int kRaised, int kNTiles>
__device__ __forceinline__ void cap_weights(float (&p)[kNTiles][4]) {
  constexpr float kMost = static_cast<float>(1 << kRaised);
  for_each_pair(p, p, [](int, int, int, float& x, float&) { x = x > kMost ? kMost : x; });
}

// s, of which factor * s is the score in base 2, becomes p, or 2^raised p if the shift is raised.
template <int kNTiles, class Shift>
__device__ __forceinline__ void exponentiate(float (&s)[kNTiles][4], float factor, Shift&& shift) {
  for_each_pair(s, s, [&](int i, int n, int e, float& x, float&) {
    x = exp2_to_zero(fmaf(x, factor, shift(i, n, e)));
  });
}

// dp - delta becomes ds, or p what is multiplied with dp - delta, by slopes.
template <int kNTiles>
__device__ __forceinline__ void weigh(float (&x)[kNTiles][4], float (&weights)[kNTiles][4]) {
  for_each_pair(x, weights, [&](int, int, int, float& product, float& weight) { product *= weight; });
}

}  // namespace cuflash::cp_async
