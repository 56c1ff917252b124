// SPDX-License-Identifier: MIT
// dq of a step of the backward pass, by all warps of a block: the rows of the step are dealt to `dq_row_warps` of them,
// head_dim to the others. Sums leave by atomics, four of a row at a time as a lane has them (sums_place()).
#pragma once

#include "kernels/cp_async/bwd_block.cuh"
#include "kernels/cp_async/bwd_products.cuh"

namespace cuflash::cp_async {

// ds is complete; `sums` is where those of all rows lie.
template <class T, int kRow>
__device__ __forceinline__ void add_dq(
    const StepRows<T>& rows, const BwdMemory<kRow>& memory, uint32_t ds_tile, int head_dim, float* sums
) {
  using OwnTile = typename BwdMemory<kRow>::OwnTile;
  using WeightTile = typename BwdMemory<kRow>::WeightTile;
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kDimWarps = kTile.warps / kTile.dq_row_warps;
  constexpr int kMTiles = kTile.block_m / kTile.dq_row_warps / 16;
  constexpr int kNTiles = kTile.head_dim / kDimWarps / 8;
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int dim = warp % kDimWarps * 16;
  const int first_row = warp / kDimWarps * 16 * kMTiles;
  const LaneAddress<WeightTile> ds_at = along_first<WeightTile>(ds_tile, 0, first_row);
  const LaneAddress<OwnTile> k_at = down_first<OwnTile>(memory.k, 0, dim);
  float dq[kMTiles][kNTiles][4];
  clear(dq);
  add_product<T, kTile.block_n / 16>(
      dq,
      [&](int k, uint32_t(&x)[kMTiles][4]) {
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) load_matrices_transposed(x[m], ds_at.at(16 * k, 16 * m));
      },
      [&](int k, int j, uint32_t(&y)[4]) { load_matrices_transposed(y, k_at.at(16 * k, 16 * kDimWarps * j)); }
  );
  const int row = first_row + lane / 4;
  const auto add_all = [&](int pitch, auto&& exists) {
    float* to = sums + (rows.row_offset + row) * pitch + dim + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < 2 * kMTiles; ++i) {
#pragma unroll
      for (int n = 0; n < kNTiles; n += 2) {
        const int offset = n / 2 * 16 * kDimWarps;
        const float* first = &dq[i / 2][n][i % 2 * 2];
        const float* second = &dq[i / 2][n + 1][i % 2 * 2];
        if (exists(8 * i, offset)) add_quad(to + 8 * i * pitch + offset, first[0], first[1], second[0], second[1]);
      }
    }
  };
  if (rows.left >= kTile.block_m && head_dim == kTile.head_dim) {
    add_all(kTile.head_dim, [](int, int) { return true; });
  } else {
    const int pitch = dq_pitch(head_dim);
    add_all(pitch, [&](int r, int d) { return row + r < rows.left && dim + d < pitch; });
  }
}

}  // namespace cuflash::cp_async
