// SPDX-License-Identifier: MIT
// What a block of the backward pass has in shared memory, and how it begins with other keys.
#pragma once

#include "kernels/common/tile_coord.h"
#include "kernels/common/warp.h"
#include "kernels/cp_async/bwd_steps.cuh"
#include "kernels/cp_async/fragment.cuh"
#include "kernels/cp_async/tiles.h"

namespace cuflash::cp_async {

// Behind the tiles in shared memory.
template <class T, int kRow>
struct BwdState {
  static constexpr int kBlockM = kBwdTiles[kRow].block_m;
  static constexpr int kBlockN = kBwdTiles[kRow].block_n;
  BwdStep<T> pace;
  BwdStep<T> steps[4];  // the present one, its neighbours and one that is being written
  BwdBlock block;
  int64_t next_tile;
  alignas(8) StepStatistics<kBlockM> statistics[2];
  int marks[kBlockN];  // keys whose gradients are not finite
};

// The tiles of a block.
template <int kRow>
struct BwdMemory {
  static constexpr BwdTile kTile = kBwdTiles[kRow];
  using OwnTile = SwizzledTile<kTile.block_n, kTile.head_dim>;
  using StepTile = SwizzledTile<kTile.block_m, kTile.head_dim>;
  using WeightTile = SwizzledTile<kTile.block_n, kTile.block_m>;
  uint32_t k;

  __device__ __forceinline__ uint32_t v() const { return k + OwnTile::kBytes; }
  // Of step i; dout lies behind q.
  __device__ __forceinline__ uint32_t q(int i) const {
    return k + 2 * OwnTile::kBytes + i % kTile.stages * 2 * StepTile::kBytes;
  }
  __device__ __forceinline__ uint32_t dout(int i) const { return q(i) + StepTile::kBytes; }
  __device__ __forceinline__ uint32_t ds(int i) const {
    return k + kTile.operand_bytes() + i % kTile.stages * WeightTile::kBytes;
  }
  // If weights are shared.
  __device__ __forceinline__ uint32_t p() const {
    return k + kTile.operand_bytes() + kTile.stages * WeightTile::kBytes;
  }
};

// Returns false if no tile is left. All threads find the keys of the next one, whose copies then run while one of them finds
// the first step.
template <class T, int kRow>
__device__ __forceinline__ bool begin_tile(
    const BwdArgs& args, BwdState<T, kRow>& state, const BwdMemory<kRow>& memory
) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kBlockN = kTile.block_n;
  const Attention& a = args.attention;
  __syncthreads();  // the previous tile is done
  const int64_t tile = state.next_tile;
  const int32_t blocks_per_head = ceil_div(a.seqlen_k, kBlockN);
  if (tile >= num_tiles(a.batch, a.num_heads_k, blocks_per_head)) return false;
  // With a causal mask the first keys have most to do.
  const TileCoord at = masks_pairs(a) ? tile_coord_in_groups(tile, a.batch, a.num_heads_k, blocks_per_head)
                                      : tile_coord(tile, a.num_heads_k, blocks_per_head);
  const Sequence s = sequence_of(a, at.batch);
  const Range own = block_rows(at.block, kBlockN, s.k.length);
  const Range rows = visible_rows_of_keys(a, s, own.begin, own.end);
  if (!own.empty() && !rows.empty()) {
    const auto copy = copy_tile<kTile.threads(), kBlockN, kTile.head_dim, T>;
    const int count = own.end - own.begin;
    copy(memory.k, row_pointer<T>(args.k, s.k, own.begin, at.head), args.k.row_stride, count, a.head_dim);
    copy(memory.v(), row_pointer<T>(args.v, s.k, own.begin, at.head), args.v.row_stride, count, a.head_dim_v);
  }
  commit_copies();
  if (threadIdx.x == 0) {
    state.block = {at, s, own, rows};
    state.steps[0].begin_head(args, state.block, at.head * group_size(a));
  }
  if (threadIdx.x < kWarpSize) {
    __syncwarp();
    state.steps[0].set_edge(state.steps[0].lane_field(), state.block, kBlockN, kTile.block_m);
  }
  __syncthreads();
  if (threadIdx.x == 0) state.next_tile += gridDim.x;
  return true;
}

}  // namespace cuflash::cp_async
