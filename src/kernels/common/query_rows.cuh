// SPDX-License-Identifier: MIT
// What the kernels that go over query rows once are made of; row_groups.h says how they share them out.
#pragma once

#include <cstdint>

#include "kernels/common/mask.h"
#include "kernels/common/row_groups.h"
#include "kernels/common/sequence.h"
#include "kernels/common/tile_coord.h"
#include "kernels/common/warp_reduce.cuh"

namespace cuflash {

// kSize elements side by side.
template <class T, int kSize>
struct alignas(sizeof(T) * kSize < 16 ? sizeof(T) * kSize : 16) RowVector {
  T at[kSize];
};

// Calls f(at, sequence, rows) for the query rows of every block of every head.
template <class F>
__device__ void for_each_row_block(const Attention& a, const RowGroups& groups, F&& f) {
  const int64_t tiles = num_row_blocks(a, groups);
  const int32_t blocks_per_head = ceil_div(a.seqlen_q, groups.rows_per_block());
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TileCoord at = tile_coord(tile, a.num_heads, blocks_per_head);
    const Sequence s = sequence_of(a, at.batch);
    const Range rows = block_rows(at.block, groups.rows_per_block(), s.q.length);
    if (!rows.empty()) f(at, s, rows);
  }
}

// The sum over the lanes of each group, by whole warps.
__device__ inline float group_sum(float x, const RowGroups& groups) {
  for (int distance = groups.lanes / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(kFullWarp, x, distance);
  return x;
}

}  // namespace cuflash
