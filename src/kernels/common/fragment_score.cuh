// SPDX-License-Identifier: MIT
// Scores that are more than scale * q.k, in fragments; the rule is score_of() of common/score.h.
#pragma once

#include "kernels/common/fragment.cuh"
#include "kernels/common/mask.h"
#include "kernels/common/ptx.cuh"
#include "kernels/common/score.h"

namespace cuflash {

// tanh(x) to a few units in the last place, without branches: tanhf() in every place of a fragment would be long.
__device__ __forceinline__ float tanh_short(float x) {
  const float square = x * x;
  // Taylor's series, below 1/4 better than the quotient, which loses digits to 1.
  const float series = x * fmaf(square, fmaf(square, fmaf(square, -17.0f / 315.0f, 2.0f / 15.0f), -1.0f / 3.0f), 1.0f);
  const float quotient = 1.0f - __fdividef(2.0f, exp2_approx(2.0f * kLog2e * fabsf(x)) + 1.0f);
  return fabsf(x) < 0.25f ? series : copysignf(quotient, x);
}

// The factor that turns products q.k into scores in base 2, if that is all: otherwise products become such scores first.
CUFLASH_HD bool is_plain(const Attention& a) {
  return a.softcap == 0.0f && a.alibi_slopes == nullptr && a.scale > 0.0f && a.scale < 1e38f;
}

// Products become scores in base 2. The lane's first product is that of `row` and `key`.
template <int kMTiles, int kNTiles>
__device__ __forceinline__ void apply_score(
    float (&products)[kMTiles][kNTiles][4], const Attention& a, const Sequence& s, float slope, int64_t row, int64_t key
) {
  if (is_plain(a)) {  // huge scores
    const float factor = a.scale * kLog2e;
    for_each_sum(products, [&](float& x, int, int) { x *= factor; });
    return;
  }
  if (a.softcap > 0.0f) {
    const float cap = a.softcap;
    const float inverse_cap = 1.0f / cap;
    for_each_sum(products, [&](float& x, int, int) { x = cap * tanh_short(x * a.scale * inverse_cap); });
  } else {
    for_each_sum(products, [&](float& x, int, int) { x *= a.scale; });
  }
  if (a.alibi_slopes != nullptr) {
    const int64_t diagonal = row + s.offset - key;
    for_each_sum(products, [&](float& x, int i, int column) {
      const int64_t distance = diagonal + 8 * i - column;
      x -= slope * static_cast<float>(distance < 0 ? -distance : distance);
    });
  }
  for_each_sum(products, [](float& x, int, int) { x *= kLog2e; });
}

// Of the columns 8 n + e of a lane's row (n < 16, e < 2), bit 2 n + e of each one below `end`.
CUFLASH_HD uint32_t columns_below(int32_t end) {
  const int32_t within = end < 0 ? 0 : (end < 128 ? end : 128);
  const int32_t count = within / 8 * 2 + (within % 8 < 2 ? within % 8 : 2);
  return static_cast<uint32_t>((uint64_t{1} << count) - 1);
}

// Hides what the rows of the lane, row + 8 i, do not see of the keys from `key` (the lane's first one) on; rows from `end`
// on see nothing.
template <int kMTiles, int kNTiles>
__device__ __forceinline__ void hide(
    float (&scores)[kMTiles][kNTiles][4], const Attention& a, const Sequence& s, int32_t row, int32_t end, int32_t key
) {
  constexpr int kWordTiles = 16;
#pragma unroll
  for (int i = 0; i < 2 * kMTiles; ++i) {
    const Range keys = visible_keys(a, s, min(row + 8 * i, end - 1));
    const int32_t last = row + 8 * i < end ? keys.end - key : 0;
#pragma unroll
    for (int first = 0; first < kNTiles; first += kWordTiles) {
      const uint32_t seen = columns_below(last - 8 * first) & ~columns_below(keys.begin - key - 8 * first);
#pragma unroll
      for (int n = first; n < kNTiles && n < first + kWordTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[i / 2][n][i % 2 * 2 + e];
          if ((seen >> (2 * (n - first) + e) & 1) == 0) score = kNegativeInfinity<float>;
        }
      }
    }
  }
}

}  // namespace cuflash
