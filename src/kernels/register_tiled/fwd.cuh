// SPDX-License-Identifier: MIT
// The algorithm of the scalar room, with products in registers instead of shared memory (micro_tile.cuh): two matrix
// products in fp32 on the FMA units, and the softmax between them.
//
//                 keys ->  32 or 64 at a time
//   128 query   +--------+      a warp owns 32 query rows, 8 lanes share a row         shared memory (fp32), head_dim 128
//   rows per    |  warp  |      1. s  = q k^T    depth head_dim, 8 x 4 sums a thread    q^T  128 x 128       64 KB
//   block,      |   0    |      2. softmax       8 lanes a row: 3 shuffles              k     32 x (128 + 4) 17 KB
//   4 warps     +--------+      3. p -> shared   the warp's own rows                    v     32 x 128       16 KB
//               |  ...   |      4. o += p v      depth keys, 8 x 16 sums a thread       p^T   32 x 128       16 KB
//               +--------+                                                             two blocks per SM
//
//   k and v have one buffer each; each is copied (cp.async) while the product that does not need it runs:
//
//     copies    | v(n)            | k(n + 1)      | v(n + 1) ...
//     math      | s(n) softmax    | o += p v(n)   | s(n + 1) ...
//               ^ barrier         ^ barrier
//
// Scores are kept in base 2. The running maximum follows the true one only when that has moved by more than
// kMaxGrowth: until then p may grow to 2^kMaxGrowth, and rescaling o is skipped (FlashAttention-4 does the same).
// Tiles of a causal mask are started longest first. What limits it: FMA issue; see docs/kernels/register_tiled.md.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/common/alignment.h"
#include "kernels/common/mask.h"
#include "kernels/common/online_softmax.h"
#include "kernels/common/score.h"
#include "kernels/common/tile_coord.h"
#include "kernels/common/tile_table.h"
#include "kernels/register_tiled/launchers.h"
#include "kernels/register_tiled/load.cuh"
#include "kernels/register_tiled/micro_tile.cuh"
#include "kernels/register_tiled/position.h"
#include "kernels/register_tiled/softmax.cuh"
#include "launch.cuh"

namespace cuflash::register_tiled {

template <int kRow>
__global__ void __launch_bounds__(kFwdTiles[kRow].threads(), kFwdTiles[kRow].min_blocks)
    fwd_kernel(const FwdArgs args, const cuflashDataType_t dtype, const bool aligned) {
  constexpr FwdTile kTile = kFwdTiles[kRow];
  constexpr int kThreads = kTile.threads();
  constexpr int kRows = kTile.rows;
  constexpr int kKeys = kTile.block_n / kTile.lanes;
  constexpr int kDims = kTile.head_dim / kTile.lanes;
  extern __shared__ __align__(16) float shared[];
  float* sQ = shared;
  float* sK = sQ + kTile.q_floats();
  float* sV = sK + kTile.k_floats();
  float* sP = sV + kTile.v_floats();
  const FwdPosition<kRow> position(threadIdx.x);

  const Attention& a = args.attention;
  // A scale so large that times log2(e) it would overflow is left to score_of().
  const bool plain = a.softcap == 0.0f && a.alibi_slopes == nullptr && fabsf(a.scale) < 1e38f;
  const float scale_log2 = a.scale * kLog2e;
  const int32_t blocks_per_head = ceil_div(a.seqlen_q, kTile.block_m);
  const int64_t tiles = num_tiles(a.batch, a.num_heads, blocks_per_head);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TileCoord at = tile_coord_by_block(tiles - 1 - tile, a.batch, a.num_heads);
    const Sequence s = sequence_of(a, at.batch);
    const Range rows = block_rows(at.block, kTile.block_m, s.q.length);
    if (rows.empty()) continue;
    const Range keys = visible_keys_of_rows(a, s, rows.begin, rows.end);
    const int32_t head_k = key_head(a, at.head);
    const float slope = alibi_slope(a, at.batch, at.head);

    using Loader = TileLoader<kThreads, kTile.block_n, kTile.head_dim>;
    Loader k_loader(args.k, dtype, s.k, keys, head_k, a.head_dim);
    Loader v_loader(args.v, dtype, s.k, keys, head_k, a.head_dim_v);

    __syncthreads();  // the previous tile's last product is done
    if (!keys.empty()) {
      load_columns<kThreads, kTile.block_m, kTile.head_dim>(sQ, args.q, dtype, s.q, rows, at.head, a.head_dim);
      k_loader.template load<kTile.pitch_k()>(sK, dtype, aligned);
    }
    __pipeline_commit();

    RowStates<kRows> state;
    float o[kRows][kDims];
    clear(o);
    for (int32_t left = keys.end - keys.begin; left > 0; left -= kTile.block_n) {
      const int32_t n = keys.end - left;
      __pipeline_wait_prior(0);
      __syncthreads();
      v_loader.template load<kTile.head_dim>(sV, dtype, aligned);
      __pipeline_commit();

      float p[kRows][kKeys];
      clear(p);
      add_column_row_product<kTile.head_dim>(
          p,
          [&](int base, int k, float(&x)[kRows]) {
#pragma unroll
            for (int i = 0; i < kRows / 4; ++i) {
              load_quad(&x[4 * i], sQ + (base + k) * kTile.block_m + position.row(4 * i));
            }
          },
          [&](int d, float(&y)[kKeys][4]) {
#pragma unroll
            for (int j = 0; j < kKeys; ++j) load_quad(y[j], sK + position.key(j) * kTile.pitch_k() + d);
          }
      );

      const TileMask mask = key_mask(a, s, rows.begin, n);
      const bool edge = !mask.hides_nothing(kTile.block_m, kTile.block_n);
      const auto for_each_hidden = [&](auto&& f) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int j = 0; j < kKeys; ++j) {
            if (!mask.sees(position.row(i), position.key(j))) f(p[i][j]);
          }
        }
      };
      if (!plain) {
        const auto place = [&](int i, int j) {
          return position.p_quad(i / 4, position.key(j), position.lane % 2) + i % 4;
        };
        map_in_memory(p, p, sP, place, [&](float product, int i, int j) {
          return score_of(a, product, slope, s, int64_t{rows.begin} + position.row(i), int64_t{n} + position.key(j))
              .value;
        });
      }
      scale_all(p, plain ? scale_log2 : kLog2e);
      if (edge) for_each_hidden([](float& score) { score = kNegativeInfinity<float>; });
      float rescale[kRows];
      const bool rescaled = state.template exponentiate<kTile.lanes>(p, rescale);
      if (edge) for_each_hidden([](float& weight) { weight = kHidden; });

#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
#pragma unroll
        for (int i = 0; i < kRows / 4; ++i) {
          const float quad[4] = {p[4 * i][j], p[4 * i + 1][j], p[4 * i + 2][j], p[4 * i + 3][j]};
          store_quad(sP + position.p_quad(i, position.key(j), position.lane % 2), quad);
        }
      }
      if (rescaled) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int j = 0; j < kDims; ++j) o[i][j] *= rescale[i];
        }
      }

      __pipeline_wait_prior(0);
      __syncthreads();
      const auto load_p = [&](int base, int k, float(&x)[kRows]) {
#pragma unroll
        for (int i = 0; i < kRows / 4; ++i) load_quad(&x[4 * i], sP + position.p_quad(i, base + k, k % 2));
      };
      const auto load_v_row = [&](int base, int k, float(&y)[kDims]) {
#pragma unroll
        for (int j = 0; j < kDims / 4; ++j)
          load_quad(&y[4 * j], sV + (base + k) * kTile.head_dim + position.dim(4 * j));
      };
      const bool careful =
          edge && __syncthreads_or(any_not_finite<kThreads, kTile.block_n, kTile.head_dim, kTile.head_dim>(sV));
      if (left > kTile.block_n) k_loader.template load<kTile.pitch_k()>(sK, dtype, aligned);
      __pipeline_commit();
      if (careful) {
        add_visible_product<kTile.block_n>(o, load_p, load_v_row);
      } else {
        add_product<kTile.block_n, Keep::kX>(o, load_p, load_v_row);
      }
    }

    // o leaves through the memory of q: rows are stored whole, and their type matters in one short loop only.
    state.template finish<kTile.lanes>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float inverse = state.inverse_sum(i);
#pragma unroll
      for (int j = 0; j < kDims; j += 4) {
        const float quad[4] = {o[i][j] * inverse, o[i][j + 1] * inverse, o[i][j + 2] * inverse, o[i][j + 3] * inverse};
        store_quad(sQ + position.row(i) * kTile.head_dim + position.dim(j), quad);
      }
    }
    __syncthreads();
    store_rows<kThreads, kTile.head_dim, kTile.head_dim>(args.o, dtype, s.q, rows, at.head, a.head_dim_v, sQ);
    if (args.lse == nullptr || position.lane != 0) continue;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int32_t row = rows.begin + position.row(i);
      if (row < rows.end) args.lse[lse_offset(a, s.q, row, at.head)] = state.lse(i);
    }
  }
}

template <int kHeadDim>
Status launch_fwd(const FwdArgs& args, cuflashDataType_t dtype, const Plan& plan, const LaunchContext& context) {
  return with_tile<kFwdTiles, kHeadDim>(plan, [&]<int kRow>() {
    constexpr FwdTile kTile = kFwdTiles[kRow];
    const LaunchShape shape = {plan.query_blocks, kTile.threads(), kTile.shared_bytes()};
    const bool aligned = rows_are_aligned(args.k, dtype_size(dtype)) && rows_are_aligned(args.v, dtype_size(dtype));
    return launch(context, "register_tiled fwd", fwd_kernel<kRow>, shape, args, dtype, aligned);
  });
}

}  // namespace cuflash::register_tiled
