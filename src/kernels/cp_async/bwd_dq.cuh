// SPDX-License-Identifier: MIT
// dq of the deterministic backward pass: the sides exchanged, so that dq is summed in registers, in order. It computes s
// and dp once more: 7 products instead of 5.
//
//                  keys ->  64 a step, 16 at a time
//   128 query   +--------+     a warp owns 16 query rows
//   rows per    | warp 0 |     1. s  = q k^T      q and dout from shared memory
//   block,      +--------+     2. dp = dout v^T
//   8 warps     |  ...   |     3. ds              rounded, in registers
//               +--------+     4. dq += ds k
//
// Tiles are those of the main kernel, with the sides exchanged; copies run a step ahead if there are two stages.
#pragma once

#include "kernels/common/exact_rows.cuh"
#include "kernels/common/tile_coord.h"
#include "kernels/common/warp.h"
#include "kernels/cp_async/bwd_products.cuh"
#include "kernels/cp_async/bwd_steps.cuh"
#include "kernels/cp_async/bwd_weights.cuh"
#include "kernels/cp_async/tiles.h"

namespace cuflash::cp_async {

template <class T, int kRow>
__global__ void __launch_bounds__(kBwdTiles[kRow].dq_threads(), 1)
    bwd_dq_kernel(const BwdArgs args, const float* delta) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kThreads = kTile.dq_threads();
  constexpr int kHeadDim = kTile.head_dim;
  constexpr int kDepth = kHeadDim / 16;
  constexpr int kOwn = kTile.block_n;
  constexpr int kStep = kTile.block_m;
  constexpr int kStages = kTile.stages;
  constexpr int kPart = 16;
  using OwnTile = SwizzledTile<kOwn, kHeadDim>;
  using StepTile = SwizzledTile<kStep, kHeadDim>;
  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t q_tile = shared_address(shared);
  const uint32_t dout_tile = q_tile + OwnTile::kBytes;
  const uint32_t stages = dout_tile + OwnTile::kBytes;  // of k and v
  const int warp_row = threadIdx.x / kWarpSize * 16;
  const int lane = threadIdx.x % kWarpSize;

  const Attention& a = args.attention;
  const bool plain = is_plain(a);
  const float factor = plain ? a.scale * kLog2e : 1.0f;
  const int32_t blocks_per_head = ceil_div(a.seqlen_q, kOwn);
  const int64_t tiles = num_tiles(a.batch, a.num_heads, blocks_per_head);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    // With a causal mask the last rows have most to do.
    const TileCoord at = masks_pairs(a) ? tile_coord_by_block(tiles - 1 - tile, a.batch, a.num_heads)
                                        : tile_coord(tile, a.num_heads, blocks_per_head);
    const Sequence s = sequence_of(a, at.batch);
    const Range own = block_rows(at.block, kOwn, s.q.length);
    if (own.empty()) continue;
    const Range keys = visible_keys_of_rows(a, s, own.begin, own.end);
    const int own_count = own.end - own.begin;
    const int32_t key_count = max(keys.end - keys.begin, 0);
    const int32_t head_k = key_head(a, at.head);

    const auto copy_pair = [&]<int kRows>(
                               uint32_t to,
                               const ConstTensor& first,
                               const ConstTensor& second,
                               const Rows& rows,
                               int32_t row,
                               int32_t head,
                               int count
                           ) {
      const auto copy = copy_tile<kThreads, kRows, kHeadDim, T>;
      copy(to, row_pointer<T>(first, rows, row, head), first.row_stride, count, a.head_dim);
      const uint32_t to_second = to + SwizzledTile<kRows, kHeadDim>::kBytes;
      copy(to_second, row_pointer<T>(second, rows, row, head), second.row_stride, count, a.head_dim_v);
    };
    const auto copy_step = [&](int32_t n) {
      if (n < key_count) {
        const uint32_t stage = stages + n / kStep % kStages * 2 * StepTile::kBytes;
        copy_pair.template operator()<kStep>(stage, args.k, args.v, s.k, keys.begin + n, head_k, key_count - n);
      }
      commit_copies();
    };

    __syncthreads();  // the previous tile is done
    if (key_count > 0)
      copy_pair.template operator()<kOwn>(q_tile, args.q, args.dout, s.q, own.begin, at.head, own_count);
    copy_step(0);

    float shift[2], negative_delta[2];
    bool unusual = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = warp_row + lane / 4 + 8 * i;
      const int64_t offset = lse_offset(a, s.q, own.begin, at.head) + row;
      const float lse = row < own_count ? args.lse[offset] : kNegativeInfinity<float>;
      shift[i] = -kLog2e * lse;
      negative_delta[i] = row < own_count ? -delta[offset] : 0.0f;
      unusual |= !(fabsf(lse) <= kUsualLse);
    }
    unusual = __any_sync(kFullWarp, unusual);

    const LaneAddress<OwnTile> own_q = down_first<OwnTile>(q_tile, warp_row);
    const LaneAddress<OwnTile> own_dout = down_first<OwnTile>(dout_tile, warp_row);
    float dq[1][kHeadDim / 8][4];
    clear(dq);
#pragma unroll 1
    for (int32_t n = 0; n < key_count; n += kStep) {
      wait_copies<0>();
      __syncthreads();
      if constexpr (kStages == 2) copy_step(n + kStep);
      const uint32_t k_tile = stages + n / kStep % kStages * 2 * StepTile::kBytes;
      const uint32_t v_tile = k_tile + StepTile::kBytes;
      const TileMask mask = key_mask(a, s, own.begin, keys.begin + n);
      const bool edge = unusual || !mask.hides_nothing(kOwn, kStep);
#pragma unroll 1
      for (int part = 0; part < kStep; part += kPart) {
        const LaneAddress<StepTile> k_rows = along_first<StepTile>(k_tile, part);
        const LaneAddress<StepTile> v_rows = along_first<StepTile>(v_tile, part);
        float p[1][kPart / 8][4], ds[1][kPart / 8][4];
        clear(p);
#pragma unroll
        for (int j = 0; j < kPart / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) ds[0][j][e] = negative_delta[e / 2];
        }
        const auto rows = [](const LaneAddress<OwnTile>& from) {
          return [&](int k, uint32_t(&x)[1][4]) { load_matrices(x[0], from.at(0, 16 * k)); };
        };
        const auto columns = [](const LaneAddress<StepTile>& from) {
          return [&](int k, int j, uint32_t(&y)[4]) { load_matrices(y, from.at(16 * j, 16 * k)); };
        };
        add_product<T, kDepth>(p, rows(own_q), columns(k_rows));
        add_product<T, kDepth>(ds, rows(own_dout), columns(v_rows));

        const int row = warp_row + lane / 4;
        const int key = part + lane % 4 * 2;
        const auto shift_of = [&](int i, int, int) { return shift[i]; };
        if (!plain) {
          const int64_t distance = int64_t{keys.begin} + n + key - s.offset - own.begin - row;
          apply_score_backward(p[0], ds[0], a, alibi_slope(a, at.batch, at.head), static_cast<float>(distance));
        }
        exponentiate(p[0], factor, shift_of);
        if (edge) {
          cap_weights<0>(p[0]);
          hide_pairs(p[0], shift_of, mask, own_count, row, key);
          hide_pairs(ds[0], shift_of, mask, own_count, row, key);
        }
        weigh(ds[0], p[0]);

        const LaneAddress<StepTile> k_columns = down_first<StepTile>(k_tile, part);
        add_product<T, kPart / 16>(
            dq,
            [&](int k, uint32_t(&x)[1][4]) { pack_operand<T>(x[0], ds[0], k); },
            [&](int k, int j, uint32_t(&y)[4]) { load_matrices_transposed(y, k_columns.at(16 * k, 16 * j)); }
        );
      }
      if constexpr (kStages == 1) {
        __syncthreads();
        copy_step(n + kStep);
      }
    }

    const Range warp_rows = {own.begin + min(warp_row, own_count), min(own.begin + warp_row + 16, own.end)};
    store_columns<T, 1>({args.dq, s.q, warp_rows, at.head, a.head_dim}, 0, dq, a.scale);
    if (!masks_pairs(a)) continue;
    unsigned marked = rows_where<2>(warp_rows.end - warp_rows.begin, [&](int i) { return !row_is_finite(dq, i); });
    __syncwarp();  // rows are written twice, by different lanes
#pragma unroll 1
    for (; marked != 0; marked &= marked - 1) {
      bwd_exact_query<T, kHeadDim>(args, delta, s, at.batch, at.head, warp_rows.begin + __ffs(marked) - 1, lane);
    }
  }
}

}  // namespace cuflash::cp_async
