// SPDX-License-Identifier: MIT
// The main kernel of the backward pass. A block owns rows of one side and streams rows of the other; the sides are alike
// but for what they sum:
//
//   owns      streams     sums in registers                                 sums in global memory
//   keys      queries     dk_j = sum_i ds_ij q_i, dv_j = sum_i p_ij dout_i    dq_i += ds_ij k_j, by atomics (default)
//   queries   keys        dq_i = sum_j ds_ij k_j (deterministic)              -
//
//   step ->     rows of the other side, 32 at a time
//             +--------+    a warp owns 16 of the block's 64 rows         shared memory (fp32), head_dim 128
//   64 own    | warp 0 |    1. s  = k q^T      4 x 4 sums a thread        own      2 x 64 x (128 + 4)   66 KB
//   rows,     +--------+    2. dp = v dout^T   4 x 4                      stream   2 x 32 x (128 + 4)   33 KB
//   4 warps   |  ...   |    3. p -> shared, 4. dv += p dout    8 x 8      weights      64 x (32 + 8)    10 KB
//             +--------+    5. ds -> shared, 6. dk += ds q     8 x 8      two blocks per SM
//                           7. dq += ds^T k    4 x 8, by all warps, then red.global.add
//
// s and dp are products of rows with rows: they read four elements of a row at a time (dot_product), so that no tile is
// needed transposed as well. p and ds share one buffer, since a warp reads only what it wrote; dq needs the ds of all
// warps. Two barriers per step: when the streamed tile has arrived, and when ds is complete; after the second one the
// next tile is copied under product 7.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/common/bwd_sides.cuh"
#include "kernels/common/mask.h"
#include "kernels/common/online_softmax.h"
#include "kernels/common/score.h"
#include "kernels/common/tile_coord.h"
#include "kernels/register_tiled/load.cuh"
#include "kernels/register_tiled/micro_tile.cuh"
#include "kernels/register_tiled/position.h"
#include "kernels/register_tiled/ptx.cuh"
#include "kernels/register_tiled/softmax.cuh"

namespace cuflash::register_tiled {

template <int kRow, Side kSide>
__global__ void __launch_bounds__(kBwdTiles[kRow].threads, kBwdTiles[kRow].min_blocks) bwd_kernel(
    const BwdArgs args, const cuflashDataType_t dtype, const bool aligned, const float* delta, float* dq_sums
) {
  constexpr bool kOwnsKeys = kSide == Side::kKeys;
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kThreads = kTile.threads;
  constexpr int kOwn = kTile.block_own;
  constexpr int kStep = kTile.block_step;
  constexpr int kPitch = kTile.pitch();
  using Position = BwdPosition<kRow>;
  constexpr int kScoreRows = Position::kScoreRows;
  constexpr int kScoreCols = Position::kScoreCols;
  extern __shared__ __align__(16) float shared[];
  float* own_first = shared;                                   // k or q
  float* own_second = own_first + kTile.tile_floats(kOwn);     // v or dout
  float* step_first = own_second + kTile.tile_floats(kOwn);    // q or k
  float* step_second = step_first + kTile.tile_floats(kStep);  // dout or v
  float* weights = step_second + kTile.tile_floats(kStep);     // p, then ds: [own][step]
  float* step_lse = weights + kOwn * kTile.pitch_w();          // of streamed query rows
  float* step_delta = step_lse + kStep;
  const Position position(threadIdx.x);

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
    const Rows& step_rows = kOwnsKeys ? s.q : s.k;
    const Range own = block_rows(at.block, kOwn, own_rows.length);
    if (own.empty()) continue;
    const Range steps =
        kOwnsKeys ? visible_rows_of_keys(a, s, own.begin, own.end) : visible_keys_of_rows(a, s, own.begin, own.end);
    const int32_t streamed_key_head = kOwnsKeys ? 0 : key_head(a, at.head);

    const auto load_pair =
        [&]<int kBlockRows>(float* pair, bool keys, const Rows& rows, const Range& range, int32_t head) {
          using Loader = TileLoader<kThreads, kBlockRows, kTile.head_dim>;
          Loader first(keys ? args.k : args.q, dtype, rows, range, head, a.head_dim);
          Loader second(keys ? args.v : args.dout, dtype, rows, range, head, a.head_dim_v);
          first.template load<kPitch>(pair, dtype, aligned);
          second.template load<kPitch>(pair + kTile.tile_floats(kBlockRows), dtype, aligned);
        };
    const auto load_step = [&](const StepCursor& step) {
      const int32_t head = kOwnsKeys ? step.head : streamed_key_head;
      const Range range = {step.begin, steps.end};
      load_pair.template operator()<kStep>(step_first, !kOwnsKeys, step_rows, range, head);
      if constexpr (kOwnsKeys) {
        for (int i = threadIdx.x; i < 2 * kStep; i += kThreads) {
          const int row = i % kStep;
          const float* from = (i < kStep ? args.lse : delta) + lse_offset(a, s.q, step.begin, head);
          copy_4_bytes(step_lse + i, from + row, row < step.left ? 4 : 0);
        }
      }
    };

    constexpr int kSumRows = Position::kSumRows;
    constexpr int kSumDims = Position::kSumDims;
    float first_sums[kSumRows][kSumDims], second_sums[kSumRows][kSumDims];  // dk and dv, or dq and nothing
    clear(first_sums);
    clear(second_sums);

    StepCursor step = {kOwnsKeys ? at.head * group_size(a) : at.head, steps.end - steps.begin, steps.begin};
    const int32_t end_head = steps.empty() ? step.head : step.head + (kOwnsKeys ? group_size(a) : 1);
    __syncthreads();  // the previous tile's last product is done
    if (step.head != end_head) {
      load_pair.template operator()<kOwn>(own_first, kOwnsKeys, own_rows, own, at.head);
      load_step(step);
    }
    __pipeline_commit();

    constexpr int kStatistics = kOwnsKeys ? kScoreCols : kScoreRows;
    RowStatistics statistics[kStatistics];
    bool saw_nothing = false;  // the same for all threads of the block
    if constexpr (!kOwnsKeys) {
#pragma unroll
      for (int i = 0; i < kStatistics; ++i) {
        const int64_t offset = lse_offset(a, s.q, own.begin, at.head) + position.score_row(i);
        const bool used = position.score_row(i) < own.end - own.begin;
        statistics[i] = {used ? args.lse[offset] : kNegativeInfinity<float>, used ? delta[offset] : 0.0f};
        saw_nothing |= statistics[i].saw_nothing();
      }
      saw_nothing = __syncthreads_or(saw_nothing);
    }
    bool own_finite = true;
    for (bool is_first = true; step.head != end_head; is_first = false) {
      __pipeline_wait_prior(0);
      __syncthreads();
      // Rows that weights are multiplied with: the streamed ones, and of the own ones the first, by dq.
      if (is_first) own_finite = !__syncthreads_or(any_not_finite<kThreads, kOwn, kTile.head_dim, kPitch>(own_first));
      if constexpr (kOwnsKeys) {
        saw_nothing = false;
#pragma unroll
        for (int j = 0; j < kStatistics; ++j) {
          statistics[j] = {step_lse[position.score_col(j)], step_delta[position.score_col(j)]};
          saw_nothing |= statistics[j].saw_nothing();
        }
        saw_nothing = __any_sync(kFullWarp, saw_nothing);  // every warp holds all streamed rows
      }

      float p[kScoreRows][kScoreCols], ds[kScoreRows][kScoreCols];
      const auto dot_rows = [&](float(&sums)[kScoreRows][kScoreCols], const float* own_tile, const float* step_tile) {
        dot_product<kTile.head_dim>(
            sums,
            [&](int d, float(&x)[kScoreRows][4]) {
#pragma unroll
              for (int i = 0; i < kScoreRows; ++i) load_quad(x[i], own_tile + position.score_row(i) * kPitch + d);
            },
            [&](int d, float(&y)[kScoreCols][4]) {
#pragma unroll
              for (int j = 0; j < kScoreCols; ++j) load_quad(y[j], step_tile + position.score_col(j) * kPitch + d);
            }
        );
      };
      dot_rows(p, own_first, step_first);
      dot_rows(ds, own_second, step_second);

#pragma unroll
      for (int i = 0; i < kScoreRows; ++i) {
#pragma unroll
        for (int j = 0; j < kScoreCols; ++j) ds[i][j] -= statistics[kOwnsKeys ? j : i].delta;
      }
      if (!plain) {
        const float slope = alibi_slope(a, at.batch, step.head);
        const auto place = [&](int i, int j) {
          return position.score_row(i) * kTile.pitch_w() + position.score_col(j);
        };
        const auto score = [&](float product, int i, int j) {
          const int64_t own_row = int64_t{own.begin} + position.score_row(i);
          const int64_t step_row = int64_t{step.begin} + position.score_col(j);
          return score_of(a, product, slope, s, kOwnsKeys ? step_row : own_row, kOwnsKeys ? own_row : step_row);
        };
        float factor[kScoreRows][kScoreCols];
        map_in_memory(factor, p, weights, place, [&](float x, int i, int j) { return score(x, i, j).factor; });
        map_in_memory(p, p, weights, place, [&](float x, int i, int j) { return score(x, i, j).value; });
#pragma unroll
        for (int i = 0; i < kScoreRows; ++i) {
#pragma unroll
          for (int j = 0; j < kScoreCols; ++j) ds[i][j] *= factor[i][j];
        }
      }
      const float scale = plain ? a.scale : 1.0f;
#pragma unroll
      for (int i = 0; i < kScoreRows; ++i) {
#pragma unroll
        for (int j = 0; j < kScoreCols; ++j) {
          const float e = exp2_approx(kLog2e * fmaf(p[i][j], scale, -statistics[kOwnsKeys ? j : i].lse));
          p[i][j] = e > 1.0f ? 1.0f : e;  // as in pair_weights(); NaN stays
          ds[i][j] *= p[i][j];
        }
      }
      const TileMask mask = kOwnsKeys ? query_mask(a, s, own.begin, step.begin) : key_mask(a, s, own.begin, step.begin);
      const int own_count = own.end - own.begin;
      const bool edge = !mask.hides_nothing(kOwn, kStep) || own_count < kOwn || saw_nothing;
      if (edge) {
#pragma unroll
        for (int i = 0; i < kScoreRows; ++i) {
          const int row = position.score_row(i);
#pragma unroll
          for (int j = 0; j < kScoreCols; ++j) {
            const bool sees = mask.sees(row, position.score_col(j)) && row < own_count;
            const bool counts = !statistics[kOwnsKeys ? j : i].saw_nothing();
            p[i][j] = !sees ? kHidden : counts ? p[i][j] : 0.0f;
            ds[i][j] = !sees ? kHidden : counts ? ds[i][j] + 0.0f : 0.0f;  // + 0: a ds of -0 is not hidden
          }
        }
      }
      const bool careful =
          edge && __syncthreads_or(
                      !own_finite || any_not_finite<kThreads, kStep, kTile.head_dim, kPitch>(step_first) ||
                      any_not_finite<kThreads, kStep, kTile.head_dim, kPitch>(step_second)
                  );

      const auto store_weights = [&](const float(&w)[kScoreRows][kScoreCols]) {
#pragma unroll
        for (int i = 0; i < kScoreRows; ++i) {
#pragma unroll
          for (int j = 0; j < kScoreCols; ++j) {
            weights[position.score_row(i) * kTile.pitch_w() + position.score_col(j)] = w[i][j];
          }
        }
      };
      // sums of own rows += weights * rows of a streamed tile
      const auto add_weighted = [&](float(&sums)[kSumRows][kSumDims], const float* step_tile) {
        const auto load_row = [&](int base, int k, float(&y)[kSumDims]) {
#pragma unroll
          for (int j = 0; j < kSumDims / 4; ++j)
            load_quad(&y[4 * j], step_tile + (base + k) * kPitch + position.sum_dim(4 * j));
        };
        if (careful) {
          add_visible_product<kStep>(
              sums,
              [&](int base, int k, float(&x)[kSumRows]) {
#pragma unroll
                for (int i = 0; i < kSumRows; ++i) x[i] = weights[position.sum_row(i) * kTile.pitch_w() + base + k];
              },
              load_row
          );
        } else {
          add_row_product<kStep>(
              sums,
              [&](int k, float(&x)[kSumRows][4]) {
#pragma unroll
                for (int i = 0; i < kSumRows; ++i) load_quad(x[i], weights + position.sum_row(i) * kTile.pitch_w() + k);
              },
              load_row
          );
        }
      };
      if constexpr (kOwnsKeys) {
        store_weights(p);
        __syncwarp();
        add_weighted(second_sums, step_second);
        __syncwarp();
      }
      store_weights(ds);
      __syncwarp();
      add_weighted(first_sums, step_first);

      __syncthreads();
      const StepCursor next = step.next(steps, kStep);
      if (next.head != end_head) load_step(next);
      __pipeline_commit();

      if constexpr (kOwnsKeys) {
        if (dq_sums != nullptr) {
          constexpr int kStepDims = Position::kStepDims;
          float sums[4][kStepDims];
          clear(sums);
          const auto load_ds = [&](int base, int k, float(&x)[4]) {
            load_quad(x, weights + (base + k) * kTile.pitch_w() + position.step_row(0));
          };
          const auto load_key = [&](int base, int k, float(&y)[kStepDims]) {
#pragma unroll
            for (int j = 0; j < kStepDims / 4; ++j)
              load_quad(&y[4 * j], own_first + (base + k) * kPitch + position.step_dim(4 * j));
          };
          if (careful) {
            add_visible_product<kOwn>(sums, load_ds, load_key);
          } else {
            add_product<kOwn, Keep::kY>(sums, load_ds, load_key);
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (position.step_row(i) >= step.left) continue;
            float* to = dq_sums + lse_offset(a, s.q, step.begin + position.step_row(i), step.head) * a.head_dim;
#pragma unroll
            for (int j = 0; j < kStepDims; j += 4) {
              const int d = position.step_dim(j);
              const float quad[4] = {sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]};
              if (d < a.head_dim) add_quad(to + d, quad, a.head_dim - d, a.head_dim % 4 == 0);
            }
          }
        }
      }
      step = next;
    }

    // Gradients leave through the memory of the own tiles: rows are stored whole, their type matters in one short loop.
    __syncthreads();
    const auto stage = [&](float* rows, const float(&sums)[kSumRows][kSumDims], float factor) {
#pragma unroll
      for (int i = 0; i < kSumRows; ++i) {
#pragma unroll
        for (int j = 0; j < kSumDims; j += 4) {
          const float quad[4] = {
              sums[i][j] * factor, sums[i][j + 1] * factor, sums[i][j + 2] * factor, sums[i][j + 3] * factor};
          store_quad(rows + position.sum_row(i) * kPitch + position.sum_dim(j), quad);
        }
      }
    };
    stage(own_first, first_sums, a.scale);
    if constexpr (kOwnsKeys) stage(own_second, second_sums, 1.0f);
    __syncthreads();
    const auto store = [&](const Tensor& tensor, int32_t head_dim, const float* from) {
      store_rows<kThreads, kTile.head_dim, kPitch>(tensor, dtype, own_rows, own, at.head, head_dim, from);
    };
    store(kOwnsKeys ? args.dk : args.dq, a.head_dim, own_first);
    if constexpr (kOwnsKeys) store(args.dv, a.head_dim_v, own_second);
  }
}

}  // namespace cuflash::register_tiled
