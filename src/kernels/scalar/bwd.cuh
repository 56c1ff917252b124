// SPDX-License-Identifier: MIT
// The backward pass with no atomics: three kernels, and s and dp computed twice. Each gradient row is one warp's sum in a
// fixed order, so the result is bitwise repeatable by itself, and the only workspace is delta.
//
//   bwd_delta_kernel   lanes over head_dim     delta_i = dout_i . o_i - dlse_i
//   bwd_dq_kernel      warp = query row, lanes over 32 keys     dq_i = scale * sum_j ds_ij k_j
//   bwd_dkv_kernel     warp = key row, lanes over 32 query rows dv_j = sum_i p_ij dout_i,  dk_j = scale * sum_i ds_ij q_i,
//                      over all query heads that read the key head
//
//   One step of dq (dkv is the same with queries and keys exchanged):         shared memory (fp32)
//   1. tile <- 32 rows of k, lane j: s_j = q . k_j                            one tile 32 x (head_dim + 1), used twice
//   2. tile <- 32 rows of v, lane j: dp_j = dout . v_j                        per warp two vectors: q and dout (k and v)
//   3. lane j: p_j = exp(s_j - lse), ds_j = p_j (dp_j - delta)                head_dim 256: 49 KB, opt-in
//   4. lane d: dq_d += ds_j k_jd   (k from global memory, coalesced)
//
// Four barriers per step, two per use of the tile. The limit is that of the forward kernel: shared-memory reads.
#pragma once

#include "kernels/common/bwd_delta.cuh"
#include "kernels/common/mask.h"
#include "kernels/common/online_softmax.h"
#include "kernels/common/score.h"
#include "kernels/common/tile_coord.h"
#include "kernels/common/tile_table.h"
#include "kernels/scalar/launchers.h"
#include "kernels/scalar/rows.cuh"
#include "launch.cuh"

namespace cuflash::scalar {

// Loads 32 rows of a tensor into the block's tile; the rows' previous use is over, and they are ready afterwards.
template <int kPitch, class T>
__device__ void exchange_tile(float* tile, const T* rows, int64_t row_stride, int count, int head_dim) {
  __syncthreads();
  load_tile<kPitch>(tile, rows, row_stride, count, head_dim);
  __syncthreads();
}

template <class T, int kHeadDim>
__global__ void __launch_bounds__(tile_for(kTiles, kHeadDim).block_m* kWarpSize)
    bwd_dq_kernel(const BwdArgs args, const float* delta) {
  constexpr Tile kTile = tile_for(kTiles, kHeadDim);
  constexpr int kPitch = pitch(kHeadDim);
  extern __shared__ float shared[];
  float* tile_rows = shared;
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  float* sQ = shared + kTile.block_n * kPitch + warp * kBwdRowVectors * kHeadDim;
  float* sDout = sQ + kHeadDim;

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

    float row_lse = 0.0f, row_delta = 0.0f;
    if (has_row) {
      load_row(sQ, row_pointer<T>(args.q, s.q, row, at.head), a.head_dim, lane);
      load_row(sDout, row_pointer<T>(args.dout, s.q, row, at.head), a.head_dim_v, lane);
      row_lse = args.lse[lse_offset(a, s.q, row, at.head)];
      row_delta = delta[lse_offset(a, s.q, row, at.head)];
    }
    RowSum<kHeadDim> dq;

    for (int64_t next = block_keys.begin; next < block_keys.end; next += kTile.block_n) {
      const Range step = clamp_range(next, next + kTile.block_n, block_keys.end);
      const int32_t n = step.begin;
      const int32_t count = step.end - step.begin;
      const T* k = row_pointer<T>(args.k, s.k, n, head_k);
      const T* v = row_pointer<T>(args.v, s.k, n, head_k);
      const int begin = max(keys.begin - n, 0);
      const int end = min(keys.end - n, count);
      const bool visible = lane >= begin && lane < end;
      const float* lane_row = tile_rows + lane * kPitch;

      exchange_tile<kPitch>(tile_rows, k, args.k.row_stride, count, a.head_dim);
      const float product = visible ? dot(sQ, lane_row, a.head_dim) : 0.0f;
      exchange_tile<kPitch>(tile_rows, v, args.v.row_stride, count, a.head_dim_v);
      const float dp = visible ? dot(sDout, lane_row, a.head_dim_v) : 0.0f;

      float ds = 0.0f;
      if (visible) {
        ds = pair_weights(score_of(a, product, slope, s, row, n + lane), row_lse, dp - row_delta).ds;
      }
      dq.add(ds, k, args.k.row_stride, begin, end, a.head_dim, lane);
    }
    if (has_row) dq.store(mutable_row_pointer<T>(args.dq, s.q, row, at.head), a.scale, a.head_dim, lane);
  }
}

template <class T, int kHeadDim>
__global__ void __launch_bounds__(tile_for(kTiles, kHeadDim).block_m* kWarpSize)
    bwd_dkv_kernel(const BwdArgs args, const float* delta) {
  constexpr Tile kTile = tile_for(kTiles, kHeadDim);
  constexpr int kPitch = pitch(kHeadDim);
  extern __shared__ float shared[];
  float* tile_rows = shared;
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  float* sK = shared + kTile.block_n * kPitch + warp * kBwdRowVectors * kHeadDim;
  float* sV = sK + kHeadDim;

  const Attention& a = args.attention;
  const int32_t blocks_per_head = ceil_div(a.seqlen_k, kTile.block_m);
  const int64_t tiles = num_tiles(a.batch, a.num_heads_k, blocks_per_head);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TileCoord at = tile_coord(tile, a.num_heads_k, blocks_per_head);
    const Sequence s = sequence_of(a, at.batch);
    const Range keys = block_rows(at.block, kTile.block_m, s.k.length);
    if (keys.empty()) continue;
    const int32_t key = keys.begin + warp;
    const bool has_key = key < keys.end;
    const Range rows = has_key ? visible_rows(a, s, key) : Range{0, 0};
    const Range all_rows = visible_rows_of_keys(a, s, keys.begin, keys.end);

    if (has_key) {
      load_row(sK, row_pointer<T>(args.k, s.k, key, at.head), a.head_dim, lane);
      load_row(sV, row_pointer<T>(args.v, s.k, key, at.head), a.head_dim_v, lane);
    }
    RowSum<kHeadDim> dk, dv;

    const int32_t group = group_size(a);
    for (int32_t head = at.head * group; head < (at.head + 1) * group; ++head) {
      const float slope = alibi_slope(a, at.batch, head);
      for (int64_t next = all_rows.begin; next < all_rows.end; next += kTile.block_n) {
        const Range step = clamp_range(next, next + kTile.block_n, all_rows.end);
        const int32_t m = step.begin;
        const int32_t count = step.end - step.begin;
        const T* q = row_pointer<T>(args.q, s.q, m, head);
        const T* dout = row_pointer<T>(args.dout, s.q, m, head);
        const int begin = max(rows.begin - m, 0);
        const int end = min(rows.end - m, count);
        const bool visible = lane >= begin && lane < end;
        const float* lane_row = tile_rows + lane * kPitch;

        exchange_tile<kPitch>(tile_rows, q, args.q.row_stride, count, a.head_dim);
        const float product = visible ? dot(sK, lane_row, a.head_dim) : 0.0f;
        exchange_tile<kPitch>(tile_rows, dout, args.dout.row_stride, count, a.head_dim_v);
        const float dp = visible ? dot(sV, lane_row, a.head_dim_v) : 0.0f;

        PairWeights<float> w{0.0f, 0.0f};
        if (visible) {
          const int64_t offset = lse_offset(a, s.q, m + lane, head);
          w = pair_weights(score_of(a, product, slope, s, m + lane, key), args.lse[offset], dp - delta[offset]);
        }
        dv.add(w.p, dout, args.dout.row_stride, begin, end, a.head_dim_v, lane);
        dk.add(w.ds, q, args.q.row_stride, begin, end, a.head_dim, lane);
      }
    }
    if (has_key) {
      dv.store(mutable_row_pointer<T>(args.dv, s.k, key, at.head), 1.0f, a.head_dim_v, lane);
      dk.store(mutable_row_pointer<T>(args.dk, s.k, key, at.head), a.scale, a.head_dim, lane);
    }
  }
}

template <class T, int kHeadDim>
Status launch_bwd(const BwdArgs& args, const Plan& plan, const LaunchContext& context) {
  constexpr Tile kTile = tile_for(kTiles, kHeadDim);
  WorkspaceCarver carver(context.workspace);
  float* delta = BwdWorkspace::carve(args.attention, carver).delta;
  const int32_t threads = kTile.block_m * kWarpSize;
  const LaunchShape queries = {plan.query_blocks, threads, shared_bytes(kTile, kBwdRowVectors)};
  const LaunchShape keys = {plan.key_blocks, threads, shared_bytes(kTile, kBwdRowVectors)};
  if (plan.query_blocks > 0) {
    CUFLASH_TRY(launch_bwd_delta<T>(context, "scalar bwd_delta", args, delta, nullptr, 0));
    CUFLASH_TRY(launch(context, "scalar bwd_dq", bwd_dq_kernel<T, kHeadDim>, queries, args, delta));
  }
  if (plan.key_blocks == 0) return Status();
  return launch(context, "scalar bwd_dkv", bwd_dkv_kernel<T, kHeadDim>, keys, args, delta);
}

}  // namespace cuflash::scalar
