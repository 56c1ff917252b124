// SPDX-License-Identifier: MIT
// The main kernel of the backward pass. A block owns rows of one side and streams rows of the other; the sides are alike
// but for what they sum:
//
//   owns      streams     sums in fragments                                 sums in global memory
//   keys      queries     dk_j = sum_i ds_ij q_i, dv_j = sum_i p_ij dout_i    dq_i += ds_ij k_j, by atomics (default)
//   queries   keys        dq_i = sum_j ds_ij k_j (deterministic)              -
//
//   step ->       rows of the other side, 64 at a time             shared memory, head_dim 128
//             +--------+    tiles are dealt to 4 warps in blocks      own      2 x 64 x (128 + 8)   34 KB
//   64 own    |        |    of fragments (deal() in tiles.h):         stream   2 x 64 x (128 + 8)   34 KB
//   rows      | p, ds  |    1. s  = k q^T      2 x 2 fragments        p, ds    2 x 64 x  (64 + 8)   18 KB
//             |        |    2. dp = v dout^T   2 x 2                  scratch  4 x 16 x 20 x 4       5 KB
//             +--------+    3. p, ds -> shared, in 16 bits            two blocks per SM
//                           4. dv += p dout, dk += ds q    2 x 4
//                           5. dq  = ds^T k    2 x 4, through scratch to red.global.add
//
// Three barriers per step: when the streamed tile has arrived, when p and ds are complete, when nobody reads them any more.
#pragma once

#include "kernels/common/bwd_sides.cuh"
#include "kernels/common/exact_rows.cuh"
#include "kernels/common/mask.h"
#include "kernels/common/score.h"
#include "kernels/common/tile_coord.h"
#include "kernels/wmma/fragment.cuh"
#include "kernels/wmma/launchers.h"
#include "kernels/wmma/load.cuh"
#include "kernels/wmma/ptx.cuh"
#include "kernels/wmma/softmax.cuh"

namespace cuflash::wmma {

// Statistics of query rows to shared memory; returns whether one of this thread's rows saw nothing.
template <int kThreads, int kRows>
__device__ __forceinline__ bool load_statistics(
    RowStatistics* to, const float* lse, const float* delta, int64_t offset, int count
) {
  bool saw_nothing = false;
  for (int i = threadIdx.x; i < min(count, kRows); i += kThreads) {
    to[i] = {lse[offset + i], delta[offset + i]};
    saw_nothing |= to[i].saw_nothing();
  }
  return saw_nothing;
}

template <class T, int kRow, Side kOwner>
__device__ __forceinline__ void bwd_tiles(const BwdArgs& args, const bool aligned, const float* delta, float* dq_sums) {
  constexpr bool kOwnsKeys = kOwner == Side::kKeys;
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kThreads = kTile.threads();
  constexpr int kOwn = kTile.block_own;
  constexpr int kStep = kTile.block_step;
  constexpr int kPitch = kTile.pitch();
  constexpr int kPitchW = kTile.pitch_w();
  constexpr WarpBlock kWeights = deal(kOwn, kStep, kTile.warps);
  constexpr WarpBlock kGradients = deal(kOwn, kTile.head_dim, kTile.warps);
  constexpr WarpBlock kStepGradients = deal(kStep, kTile.head_dim, kTile.warps);
  extern __shared__ __align__(128) unsigned char shared[];
  T* own_first = reinterpret_cast<T*>(shared);          // k or q
  T* own_second = own_first + kTile.own_elements();     // v or dout
  T* step_first = own_second + kTile.own_elements();    // q or k
  T* step_second = step_first + kTile.step_elements();  // dout or v
  T* sP = step_second + kTile.step_elements();          // [own][step]
  T* sDs = sP + kTile.w_elements();                     // [own][step]
  float* all_scratch = reinterpret_cast<float*>(sDs + kTile.w_elements());
  RowStatistics* statistics = reinterpret_cast<RowStatistics*>(all_scratch + kTile.warps * kScratchFloats);
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  float* scratch = all_scratch + warp * kScratchFloats;
  const ElementMap map(scratch, lane);

  const Attention& a = args.attention;
  const bool plain = a.softcap == 0.0f && a.alibi_slopes == nullptr;
  const int32_t own_heads = kOwnsKeys ? a.num_heads_k : a.num_heads;
  const int32_t blocks_per_head = ceil_div(kOwnsKeys ? a.seqlen_k : a.seqlen_q, kOwn);
  const int64_t tiles = num_tiles(a.batch, own_heads, blocks_per_head);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    // With a causal mask the first keys and the last queries have most to do.
    const TileCoord at = tile_coord_by_block(kOwnsKeys ? tile : tiles - 1 - tile, a.batch, own_heads);
    const Sequence s = sequence_of(a, at.batch);
    const Rows& own_rows = kOwnsKeys ? s.k : s.q;
    const Range own = block_rows(at.block, kOwn, own_rows.length);
    if (own.empty()) continue;
    const int own_count = own.end - own.begin;
    const Range steps =
        kOwnsKeys ? visible_rows_of_keys(a, s, own.begin, own.end) : visible_keys_of_rows(a, s, own.begin, own.end);

    StepCursor step = {kOwnsKeys ? at.head * group_size(a) : at.head, steps.end - steps.begin, steps.begin};
    const int32_t end_head = steps.empty() ? step.head : step.head + (kOwnsKeys ? group_size(a) : 1);
    const auto source = [&]<class Copy>(bool keys, bool first, int32_t row, int count, int32_t head) {
      const ConstTensor& tensor = keys ? (first ? args.k : args.v) : (first ? args.q : args.dout);
      const T* rows = row_pointer<T>(tensor, keys ? s.k : s.q, row, head);
      return Copy::source(rows, tensor.row_stride, count, first ? a.head_dim : a.head_dim_v);
    };
    const auto copy_own = [&](T* to, bool first) {
      using Copy = TileCopy<T, kThreads, kOwn, kTile.head_dim, kPitch>;
      Copy copy;
      const auto from = source.template operator()<Copy>(kOwnsKeys, first, own.begin, own_count, at.head);
      copy.fetch(from, aligned);
      copy.place(to, from, aligned);
    };
    using StepCopy = TileCopy<T, kThreads, kStep, kTile.head_dim, kPitch>;
    StepCopy step_copy;
    typename StepCopy::Source step_source{};
    const auto fetch_step = [&](const StepCursor& step, bool first) {
      const int32_t head = kOwnsKeys ? step.head : key_head(a, at.head);
      const int count = step.head == end_head ? 0 : step.left;
      step_source = source.template operator()<StepCopy>(!kOwnsKeys, first, step.begin, count, head);
      step_copy.fetch(step_source, aligned);
    };

    Sums first_sums[kGradients.rows][kGradients.cols];   // dk or dq
    Sums second_sums[kGradients.rows][kGradients.cols];  // dv or nothing
    clear(first_sums);
    clear(second_sums);

    __syncthreads();  // the previous tile's results have left
    bool saw_nothing = false;
    if (step.head != end_head) {
      copy_own(own_first, true);
      copy_own(own_second, false);
      if constexpr (!kOwnsKeys) {
        const int64_t offset = lse_offset(a, s.q, own.begin, at.head);
        saw_nothing = load_statistics<kThreads, kOwn>(statistics, args.lse, delta, offset, own_count);
      }
      fetch_step(step, true);
    }
    while (step.head != end_head) {
      step_copy.place(step_first, step_source, aligned);
      fetch_step(step, false);
      if constexpr (kOwnsKeys) {
        const int64_t offset = lse_offset(a, s.q, step.begin, step.head);
        saw_nothing = load_statistics<kThreads, kStep>(statistics, args.lse, delta, offset, step.left);
      }
      step_copy.place(step_second, step_source, aligned);
      saw_nothing = __syncthreads_or(saw_nothing);

      if (warp < kWeights.warps) {
        const int first_row = kWeights.first_row(warp);
        const int first_col = kWeights.first_col(warp);
        const auto own_operand = [&](const T* rows) { return along_rows<kPitch>(rows + first_row * kPitch); };
        const auto step_operand = [&](const T* rows) { return along_rows<kPitch>(rows + first_col * kPitch); };
        const auto statistics_of = [&](int row, int col) {
          return statistics[kOwnsKeys ? first_col + col : first_row + row];
        };
        const auto score = [&](float product, int row, int col) {
          const int64_t own_row = int64_t{own.begin} + first_row + row;
          const int64_t step_row = int64_t{step.begin} + first_col + col;
          const float slope = alibi_slope(a, at.batch, step.head);
          return score_of(a, product, slope, s, kOwnsKeys ? step_row : own_row, kOwnsKeys ? own_row : step_row);
        };
        const TileMask mask =
            kOwnsKeys ? query_mask(a, s, own.begin, step.begin) : key_mask(a, s, own.begin, step.begin);
        const bool edge = !mask.hides_nothing(kOwn, kStep) || own_count < kOwn || saw_nothing;
        const auto is_counted = [&](int row, int col) {
          return mask.sees(first_row + row, first_col + col) && first_row + row < own_count &&
                 !statistics_of(row, col).saw_nothing();
        };

        Sums p[kWeights.rows][kWeights.cols], ds[kWeights.rows][kWeights.cols];
        clear(p);
        add_product<kTile.head_dim>(p, own_operand(own_first), step_operand(step_first));
        Sums factor[kWeights.rows][kWeights.cols];  // softcap's derivative
        if (!plain) {
          for_each_place<kWeights.rows, kWeights.cols>([&](int i, int j, int e) { factor[i][j].x[e] = p[i][j].x[e]; });
          map_one_by_one(factor, scratch, lane, [&](float product, int row, int col) {
            return score(product, row, col).factor;
          });
          map_one_by_one(p, scratch, lane, [&](float product, int row, int col) {
            return score(product, row, col).value;
          });
        }
        const float scale = plain ? a.scale : 1.0f;
        for_each_element(p, map, [&](float& x, int row, int col) {
          const float e = exp2_to_zero(kLog2e * fmaf(x, scale, -statistics_of(row, col).lse));
          x = e > 1.0f ? 1.0f : e;  // as in pair_weights(); NaN stays
        });
        clear(ds);
        add_product<kTile.head_dim>(ds, own_operand(own_second), step_operand(step_second));
        for_each_element(ds, map, [&](float& x, int row, int col) { x -= statistics_of(row, col).delta; });
        for_each_place<kWeights.rows, kWeights.cols>([&](int i, int j, int e) {
          ds[i][j].x[e] *= p[i][j].x[e];
          if (!plain) ds[i][j].x[e] *= factor[i][j].x[e];
        });
        if (edge) {
          for_each_place<kWeights.rows, kWeights.cols>([&](int i, int j, int e) {
            if (is_counted(i * kSide + map.row(e), j * kSide + map.col(e))) return;
            p[i][j].x[e] = 0.0f;
            ds[i][j].x[e] = 0.0f;
          });
        }
        if constexpr (kOwnsKeys) store_rounded<kPitchW>(sP + first_row * kPitchW + first_col, p, map);
        store_rounded<kPitchW>(sDs + first_row * kPitchW + first_col, ds, map);
      }
      __syncthreads();

      {
        const int first_row = kGradients.first_row(warp);
        const int first_col = kGradients.first_col(warp);
        const auto add_weighted = [&](auto& sums, const T* weights, const T* rows) {
          add_product<kStep>(
              sums, along_rows<kPitchW>(weights + first_row * kPitchW), down_columns<kPitch>(rows + first_col)
          );
        };
        if constexpr (kOwnsKeys) add_weighted(second_sums, sP, step_second);
        add_weighted(first_sums, sDs, step_first);
      }
      if (kOwnsKeys && dq_sums != nullptr && warp < kStepGradients.warps) {
        const int first_row = kStepGradients.first_row(warp);
        const int first_col = kStepGradients.first_col(warp);
        Sums dq[kStepGradients.rows][kStepGradients.cols];
        clear(dq);
        add_product<kOwn>(dq, down_columns<kPitchW>(sDs + first_row), down_columns<kPitch>(own_first + first_col));
        const int pitch = dq_pitch(a.head_dim);
        float* to = dq_sums + lse_offset(a, s.q, step.begin, step.head) * pitch;
        // A lane adds four neighbours of row `lane % 8` and of the one 8 below.
        const int lane_col = lane / 8 * 4;
#pragma unroll
        for (int i = 0; i < kStepGradients.rows; ++i) {
#pragma unroll
          for (int j = 0; j < kStepGradients.cols; ++j) {
            to_scratch(scratch, dq[i][j]);
#pragma unroll
            for (int row = lane % 8; row < kSide; row += 8) {
              const int step_row = first_row + i * kSide + row;
              const int d = first_col + j * kSide + lane_col;
              if (step_row >= step.left || d >= pitch) continue;
              add_quad(
                  to + step_row * pitch + d, *reinterpret_cast<const float4*>(scratch + row * kScratchPitch + lane_col)
              );
            }
            __syncwarp();
          }
        }
      }
      step = step.next(steps, kStep);
      fetch_step(step, true);
      __syncthreads();
    }

    // Gradients leave through the memory of the own tiles: a warp stores whole rows.
    const int first_row = kGradients.first_row(warp);
    const int first_col = kGradients.first_col(warp);
    for_each_place<kGradients.rows, kGradients.cols>([&](int i, int j, int e) { first_sums[i][j].x[e] *= a.scale; });
    store_rounded<kPitch>(own_first + first_row * kPitch + first_col, first_sums, map);
    if constexpr (kOwnsKeys) store_rounded<kPitch>(own_second + first_row * kPitch + first_col, second_sums, map);
    __syncthreads();
    constexpr int kWarpRows = kOwn / kTile.warps;
    const int warp_row = warp * kWarpRows;
    const auto store = [&](const Tensor& tensor, int32_t head_dim, const T* from) {
      return store_rows<T, kTile.head_dim, kPitch>(
          mutable_row_pointer<T>(tensor, own_rows, own.begin, at.head) + warp_row * tensor.row_stride,
          tensor.row_stride,
          min(own_count - warp_row, kWarpRows),
          head_dim,
          aligned,
          from + warp_row * kPitch,
          lane
      );
    };
    uint32_t not_finite = store(kOwnsKeys ? args.dk : args.dq, a.head_dim, own_first);
    if constexpr (kOwnsKeys) not_finite |= store(args.dv, a.head_dim_v, own_second);
    if (!masks_pairs(a)) continue;
    __syncwarp();
    for_each_bit(not_finite, [&](int bit) {
      const int32_t row = own.begin + warp_row + bit;
      if constexpr (kOwnsKeys) {
        bwd_exact_key<T, kTile.head_dim>(args, delta, s, at.batch, at.head, row, lane);
      } else {
        bwd_exact_query<T, kTile.head_dim>(args, delta, s, at.batch, at.head, row, lane);
      }
    });
  }
}

template <class T, int kRow, Side kOwner>
__global__ void __launch_bounds__(kBwdTiles[kRow].threads(), kBwdTiles[kRow].min_blocks)
    bwd_kernel(const BwdArgs args, const bool aligned, const float* delta, float* dq_sums) {
  if constexpr (kHasFragments<T>) bwd_tiles<T, kRow, kOwner>(args, aligned, delta, dq_sums);
}

}  // namespace cuflash::wmma
