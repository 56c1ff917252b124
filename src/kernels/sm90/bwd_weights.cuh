// SPDX-License-Identifier: MIT
// From products to the weights p and ds of the backward pass. Rows are keys, columns are query rows: a lane has keys
// r + 8 i and query rows c + 8 n + e of a tile, e being 0 or 1.
#pragma once

#include "kernels/common/fragment_score.cuh"
#include "kernels/common/mask.h"
#include "kernels/sm90/ptx.cuh"

namespace cuflash::sm90 {

// What each query row of a step brings, in pairs: how it enters is the same for all keys.
template <int kRows>
struct BwdStatistics {
  float2 shift[kRows / 2];  // -lse in base 2
  float2 delta[kRows / 2];  // -delta
};

// The pairs of a lane's query rows, for a tile of kBlocks blocks of columns. The first ones are read before the products that
// they are for have come, as many as there are registers for: reads of shared memory come after those of products.
template <int kBlocks>
struct RowPairs {
  static constexpr int kAhead = 6;
  float2 at[kBlocks];

  __device__ __forceinline__ void read_ahead(const float2* from) {
    keep_order();
#pragma unroll
    for (int n = 0; n < kAhead; ++n) at[n] = from[4 * n];
    keep_order();
  }
  __device__ __forceinline__ void read_rest(const float2* from) {
#pragma unroll
    for (int n = kAhead; n < kBlocks; ++n) at[n] = from[4 * n];
  }
  __device__ __forceinline__ void read(const float2* from) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) at[n] = from[4 * n];
  }
};

// Calls f(x, i, n, e) for a lane's elements.
template <int kBlocks, class F>
__device__ __forceinline__ void for_each_element(float (&x)[kBlocks][4], F&& f) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
    for (int j = 0; j < 4; ++j) f(x[n][j], j / 2, n, j % 2);
  }
}

// s, of which factor * s is the score in base 2, becomes p.
template <int kBlocks>
__device__ __forceinline__ void exponentiate(float (&s)[kBlocks][4], float factor, const RowPairs<kBlocks>& shift) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
    const float2 pair = shift.at[n];
    s[n][0] = exp2_to_zero(fmaf(s[n][0], factor, pair.x));
    s[n][1] = exp2_to_zero(fmaf(s[n][1], factor, pair.y));
    s[n][2] = exp2_to_zero(fmaf(s[n][2], factor, pair.x));
    s[n][3] = exp2_to_zero(fmaf(s[n][3], factor, pair.y));
  }
}

// dp becomes dp - delta.
template <int kBlocks>
__device__ __forceinline__ void subtract_delta(float (&dp)[kBlocks][4], const RowPairs<kBlocks>& delta) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
    const float2 pair = delta.at[n];
    dp[n][0] += pair.x;
    dp[n][1] += pair.y;
    dp[n][2] += pair.x;
    dp[n][3] += pair.y;
  }
}

// Products become scores in base 2, and dp - delta is multiplied by d(score) / d(scale * product). `distance` is that of
// ALiBi for the lane's first pair, counted so that it grows along columns; in fp32, exact up to 2^24.
template <int kBlocks>
__device__ __forceinline__ void apply_score_backward(
    float (&s)[kBlocks][4], float (&dp)[kBlocks][4], const Attention& a, float slope, float distance
) {
  const float inverse_cap = a.softcap > 0.0f ? 1.0f / a.softcap : 0.0f;
  for_each_element(s, [&](float& x, int i, int n, int e) {
    x *= a.scale;
    if (a.softcap > 0.0f) {
      const float t = tanh_short(x * inverse_cap);
      x = a.softcap * t;
      dp[n][2 * i + e] *= fmaf(-t, t, 1.0f);
    }
    if (a.alibi_slopes != nullptr) x = fmaf(-slope, fabsf(distance + static_cast<float>(8 * n + e - 8 * i)), x);
    x *= kLog2e;
  });
}

// Which columns of a step a lane's two keys see: of 8 n + e, those in [begin, end).
struct SeenColumns {
  int begin[2];
  int end[2];

  // `key` and `row` are the lane's first ones in the tile, of whose keys the first key_count exist.
  __device__ __forceinline__ SeenColumns(const TileMask& mask, int key_count, int key, int row) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int k = key + 8 * i;
      begin[i] = mask.begin + k - row;
      end[i] = (k < key_count ? min(mask.end + k, mask.columns) : TileMask::kFar * -1) - row;
    }
  }
};

// Weights of pairs that do not see each other become 0.
template <int kBlocks>
__device__ __forceinline__ void hide_pairs(float (&x)[kBlocks][4], const SeenColumns& seen) {
  for_each_element(x, [&](float& weight, int i, int n, int e) {
    weight = (8 * n + e >= seen.begin[i]) & (8 * n + e < seen.end[i]) ? weight : 0.0f;
  });
}

// For rows of unusual lse: weights of a row that saw nothing become 0, and with kLimit, no weight is above 1.
template <bool kLimit, int kBlocks>
__device__ __forceinline__ void hide_rows(float (&x)[kBlocks][4], const float2* shift) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
    keep_order();  // one pair at a time: registers are for weights
    const float2 pair = shift[4 * n];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kLimit) x[n][j] = x[n][j] > 1.0f ? 1.0f : x[n][j];  // NaN stays, as in pair_weights()
      if ((j % 2 == 0 ? pair.x : pair.y) == -kNegativeInfinity<float>) x[n][j] = 0.0f;
    }
  }
}

// dp - delta becomes ds.
template <int kBlocks>
__device__ __forceinline__ void weigh(float (&dp)[kBlocks][4], const float (&p)[kBlocks][4]) {
  for_each_element(dp, [&](float& y, int i, int n, int e) { y *= p[n][2 * i + e]; });
}

// Weights, rounded, as operand a of products that are 16 query rows deep.
template <class T, int kBlocks>
__device__ __forceinline__ void round_weights(uint32_t (&to)[kBlocks / 2][4], const float (&x)[kBlocks][4]) {
#pragma unroll
  for (int k = 0; k < kBlocks / 2; ++k) {
#pragma unroll
    for (int j = 0; j < 4; ++j) to[k][j] = pack<T>(x[2 * k + j / 2][j % 2 * 2], x[2 * k + j / 2][j % 2 * 2 + 1]);
  }
}

}  // namespace cuflash::sm90
