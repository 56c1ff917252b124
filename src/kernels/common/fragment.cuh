// SPDX-License-Identifier: MIT
// Sums of a warp's products on tensor cores, in the layout that mma.m16n8 and wgmma share (PTX ISA): lane l holds of every
// 16x8 block [m][n] elements (r, c), (r, c + 1), (r + 8, c), (r + 8, c + 1) with r = l / 4 and c = 2 (l % 4). A lane has parts
// of two rows per block, a quad of lanes whole rows. Row i of a lane is row l / 4 + 8 i of the warp.
#pragma once

#include "kernels/common/host_device.h"
#include "kernels/common/warp.h"

namespace cuflash {

// Over the four lanes that share a row.
template <class Combine>
__device__ __forceinline__ float reduce_quad(float x, Combine&& combine) {
  x = combine(x, __shfl_xor_sync(kFullWarp, x, 1));
  return combine(x, __shfl_xor_sync(kFullWarp, x, 2));
}

// Calls f(sum, i, column) for the sums of a lane, those of its row i.
template <int kMTiles, int kNTiles, class F>
__device__ __forceinline__ void for_each_sum(float (&sums)[kMTiles][kNTiles][4], F&& f) {
#pragma unroll
  for (int i = 0; i < 2 * kMTiles; ++i) {
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) f(sums[i / 2][n][i % 2 * 2 + e], i, 8 * n + e);
    }
  }
}

// From a set of lanes to that of the rows, among eight, that their quads share.
__device__ __forceinline__ unsigned rows_of_lanes(unsigned lanes) {
  if (lanes == 0) return 0;
  unsigned rows = 0;
#pragma unroll 1
  for (int row = 0; row < 8; ++row) rows |= (lanes >> (4 * row) & 0xf) != 0 ? 1u << row : 0u;
  return rows;
}

// The first `count` rows of a warp, as bits, for which a lane says so; f(i) is asked of its row i.
template <int kRows, class F>
__device__ __forceinline__ unsigned rows_where(int count, F&& f) {
  const int first = threadIdx.x % kWarpSize / 4;
  unsigned rows = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    rows |= rows_of_lanes(__ballot_sync(kFullWarp, f(i) && first + 8 * i < count)) << (8 * i);
  }
  return rows;
}

// Whether the lane's part of its row i holds no NaN and no infinity; it may say no of huge numbers, too.
template <int kMTiles, int kNTiles>
__device__ __forceinline__ bool row_is_finite(const float (&sums)[kMTiles][kNTiles][4], int i) {
  float total = 0.0f;
#pragma unroll
  for (int n = 0; n < kNTiles; ++n) total += sums[i / 2][n][i % 2 * 2] + sums[i / 2][n][i % 2 * 2 + 1];
  return total - total == 0.0f;
}

template <int kMTiles, int kNTiles>
__device__ __forceinline__ bool all_finite(const float (&sums)[kMTiles][kNTiles][4]) {
  bool finite = true;
#pragma unroll
  for (int i = 0; i < 2 * kMTiles; ++i) finite &= row_is_finite(sums, i);
  return finite;
}

}  // namespace cuflash
