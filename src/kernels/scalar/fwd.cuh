// SPDX-License-Identifier: MIT
// The first room: the algorithm and nothing else. Every dtype, head_dim, mask, layout and alignment, on every GPU from sm_70 on.
//
//              keys ->  [ n = 0 | 1 | 2 | ... ]  32 at a time          shared memory (fp32)
//   8 query    +----+                                                  sK   32 x (head_dim + 1)
//   rows per   | w0 |   a warp owns one query row                      sQ    8 x head_dim
//   block      | .. |   1. lane j: s_j = q . k_j     (sK, sQ)          head_dim 256: 41 KB, static limit 48 KB
//              | w7 |   2. warp: maximum, p_j, sum   (shuffles)
//              +----+   3. lane d: o_d += p_j v_jd   (v from global memory, one coalesced row per key)
//
// Two barriers per step: after the load of sK, and before the next one overwrites it. What limits it: step 1 reads two
// shared-memory words per multiplication, so it runs at the speed of shared memory, not of the FMA units.
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/online_softmax.h"
#include "kernels/common/score.h"
#include "kernels/common/tile_coord.h"
#include "kernels/common/tile_table.h"
#include "kernels/scalar/launchers.h"
#include "kernels/scalar/rows.cuh"
#include "launch.cuh"

namespace cuflash::scalar {

template <class T, int kHeadDim>
__global__ void __launch_bounds__(tile_for(kTiles, kHeadDim).block_m* kWarpSize) fwd_kernel(const FwdArgs args) {
  constexpr Tile kTile = tile_for(kTiles, kHeadDim);
  constexpr int kPitch = pitch(kHeadDim);
  extern __shared__ float shared[];
  float* sK = shared;
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  float* sQ = shared + kTile.block_n * kPitch + warp * kHeadDim;

  const Attention& a = args.attention;
  const int32_t blocks_per_head = ceil_div(a.seqlen_q, kTile.block_m);
  const int64_t tiles = num_tiles(a.batch, a.num_heads, blocks_per_head);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TileCoord at = tile_coord(tile, a.num_heads, blocks_per_head);
    const Sequence s = sequence_of(a, at.batch);
    const Range rows = block_rows(at.block, kTile.block_m, s.q.length);
    if (rows.empty()) continue;
    const int32_t row = rows.begin + warp;
    const bool has_row = row < rows.end;
    const Range keys = has_row ? visible_keys(a, s, row) : Range{0, 0};
    const Range block_keys = visible_keys_of_rows(a, s, rows.begin, rows.end);
    const int32_t head_k = key_head(a, at.head);
    const float slope = alibi_slope(a, at.batch, at.head);

    if (has_row) load_row(sQ, row_pointer<T>(args.q, s.q, row, at.head), a.head_dim, lane);
    RowState<float> state = RowState<float>::empty();
    RowSum<kHeadDim> o;

    for (int64_t next = block_keys.begin; next < block_keys.end; next += kTile.block_n) {
      const Range step = clamp_range(next, next + kTile.block_n, block_keys.end);
      const int32_t n = step.begin;
      const int32_t count = step.end - step.begin;
      const T* k = row_pointer<T>(args.k, s.k, n, head_k);
      const T* v = row_pointer<T>(args.v, s.k, n, head_k);
      __syncthreads();
      load_tile<kPitch>(sK, k, args.k.row_stride, count, a.head_dim);
      __syncthreads();

      // This row's part [begin, end) of the tile.
      const int begin = max(keys.begin - n, 0);
      const int end = min(keys.end - n, count);
      if (begin >= end) continue;
      const bool visible = lane >= begin && lane < end;
      float score = kNegativeInfinity<float>;
      if (visible) {
        const float product = dot(sQ, sK + lane * kPitch, a.head_dim);
        score = score_of(a, product, slope, s, row, n + lane).value;
      }
      const float rescale = state.raise(warp_max_or_nan(score));
      const float p = visible ? expf(score - state.shift()) : 0.0f;
      state.row_sum += warp_sum(p);
      o.scale(rescale);
      o.add(p, v, args.v.row_stride, begin, end, a.head_dim_v, lane);
    }

    if (has_row) {
      o.store(mutable_row_pointer<T>(args.o, s.q, row, at.head), state.inverse_sum(), a.head_dim_v, lane);
      if (args.lse != nullptr && lane == 0) args.lse[lse_offset(a, s.q, row, at.head)] = state.lse();
    }
  }
}

template <class T, int kHeadDim>
Status launch_fwd(const FwdArgs& args, const Plan& plan, const LaunchContext& context) {
  constexpr Tile kTile = tile_for(kTiles, kHeadDim);
  const LaunchShape shape = {plan.query_blocks, kTile.block_m * kWarpSize, shared_bytes(kTile, kFwdRowVectors)};
  return launch(context, "scalar fwd", fwd_kernel<T, kHeadDim>, shape, args);
}

}  // namespace cuflash::scalar
