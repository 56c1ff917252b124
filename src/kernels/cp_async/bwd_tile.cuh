// SPDX-License-Identifier: MIT
// The main kernel of the backward pass. A block owns keys and streams the query rows that see them, of all query heads of
// the group. Products are formed transposed, so that what a warp computes of p^T and ds^T is, rounded, operand a of its
// next products:
//
//                  queries ->  64 a step, `part` at a time
//   128 keys    +--------+     a warp owns 32 (head_dim 64) or 16 keys
//   per block,  | warp 0 |     1. s  = k q^T                            4. p^T, ds^T rounded, in registers
//   4 or 8      +--------+     2. dp = v dout^T                         5. dv += p^T dout
//   warps       |  ...   |     3. p, ds                                 6. dk += ds^T q
//               +--------+     7. ds^T to shared memory: dq += ds k of the step before, by all warps, red.global.add
//
//   copies    | q, dout (i + 1)                       | q, dout (i + 2)
//   warp      | dq (i - 1), s dp p ds dv dk (i) ...   | dq (i), s dp p ds dv dk (i + 1) ...
//             ^ wait, barrier                         ^ wait, barrier
//
// One barrier per step: it says that the step's copies have arrived, that the ds of the step before is complete, and that
// the memory of the one before that is free. Between barriers warps run freely, so that the arithmetic of one runs under
// the products of others.
//
// Where the gradients of a warp's keys do not fit into its registers (head_dim 128 and up, see tiles.h), `split` warps share
// the keys. Each computes the weights of its part of the queries and the gradients of its part of head_dim; weights pass
// through shared memory, which takes a barrier of these warps.
//
// dk and dv rows that come out as NaN or infinite under a mask are computed again by the definition (exact_rows.cuh).
#pragma once

#include "kernels/common/bwd_workspace.h"
#include "kernels/common/exact_rows.cuh"
#include "kernels/common/tile_coord.h"
#include "kernels/common/warp.h"
#include "kernels/cp_async/bwd_products.cuh"
#include "kernels/cp_async/bwd_steps.cuh"
#include "kernels/cp_async/bwd_weights.cuh"
#include "kernels/cp_async/tiles.h"

namespace cuflash::cp_async {

// Behind the tiles in shared memory.
template <class T, int kRow>
struct BwdState {
  static constexpr int kBlockM = kBwdTiles[kRow].block_m;
  static constexpr int kBlockN = kBwdTiles[kRow].block_n;
  BwdStep<T> steps[4];  // the present one, its neighbours and one that is being written
  BwdBlock block;
  int64_t next_tile;
  alignas(8) StepStatistics<kBlockM> statistics[2];
  bool unusual[4];     // of the steps: whether a row's lse wants a closer look
  int marks[kBlockN];  // keys whose gradients are not finite
};

// Returns false if no tile is left. All threads find the keys of the next one, whose copies then run while one of them finds
// the first step.
template <class T, int kRow>
__device__ __forceinline__ bool begin_tile(
    const BwdArgs& args, BwdState<T, kRow>& state, uint32_t k_tile, uint32_t v_tile
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
    copy(k_tile, row_pointer<T>(args.k, s.k, own.begin, at.head), args.k.row_stride, count, a.head_dim);
    copy(v_tile, row_pointer<T>(args.v, s.k, own.begin, at.head), args.v.row_stride, count, a.head_dim_v);
  }
  commit_copies();
  if (threadIdx.x == 0) {
    state.block = {at, s, own, rows};
    state.steps[0].set(args, state.block, at.head * group_size(a), kBlockN, kTile.block_m);
  }
  if (threadIdx.x < 2) state.unusual[threadIdx.x] = false;  // of the first two steps
  __syncthreads();
  if (threadIdx.x == 0) state.next_tile += gridDim.x;
  return true;
}

// kPlain: as is_plain() says; the kernel for other scores is larger, and apart so that this one has its registers.
template <class T, int kRow, bool kPlain>
__global__ void __launch_bounds__(kBwdTiles[kRow].threads(), kBwdTiles[kRow].min_blocks)
    bwd_kernel(const BwdArgs args, const float* delta, float* dq_sums) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kThreads = kTile.threads();
  constexpr int kHeadDim = kTile.head_dim;
  constexpr int kDepth = kHeadDim / 16;
  constexpr int kBlockM = kTile.block_m;
  constexpr int kBlockN = kTile.block_n;
  constexpr bool kKeepsKv = kTile.kv_in_registers;
  constexpr int kSplit = kTile.split;
  constexpr bool kAlone = kSplit == 1;
  constexpr int kStages = kTile.stages;
  constexpr int kMTiles = kTile.warp_keys() / 16;
  constexpr int kPart = kTile.part;
  constexpr int kWarpQueries = kBlockM / kSplit;
  constexpr int kSumTiles = kHeadDim / kSplit / 8;  // blocks of 8 columns of dk and dv
  constexpr int kDqRowWarps = kTile.dq_row_warps;
  constexpr int kDqDimWarps = kTile.warps / kDqRowWarps;
  constexpr int kDqMTiles = kBlockM / kDqRowWarps / 16;
  constexpr int kDqNTiles = kHeadDim / kDqDimWarps / 8;
  using OwnTile = SwizzledTile<kBlockN, kHeadDim>;
  using StepTile = SwizzledTile<kBlockM, kHeadDim>;
  using WeightTile = SwizzledTile<kBlockN, kBlockM>;
  static_assert(kAlone || kPart == kWarpQueries);

  extern __shared__ __align__(128) unsigned char shared[];
  static_assert(sizeof(BwdState<T, kRow>) <= kTile.state_bytes());
  const uint32_t k_tile = shared_address(shared);
  const uint32_t v_tile = k_tile + OwnTile::kBytes;
  const uint32_t stages = v_tile + OwnTile::kBytes;  // of q and dout
  const uint32_t ds_tiles = stages + kStages * 2 * StepTile::kBytes;
  const uint32_t p_tile = ds_tiles + kStages * WeightTile::kBytes;  // only if weights are shared
  BwdState<T, kRow>& state = *reinterpret_cast<BwdState<T, kRow>*>(shared + kTile.state_offset());

  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int warp_key = warp / kSplit * kTile.warp_keys();
  const int member = warp % kSplit;
  const int warp_query = member * kWarpQueries;
  // Where two warps of a block share a scheduler, one computes dq before its weights and the other behind: otherwise all
  // would add to global memory at the same time.
  const bool dq_first = kTile.warps < 8 || warp < kTile.warps / 2;

  const Attention& a = args.attention;
  const float factor = kPlain ? a.scale * kLog2e : 1.0f;
  if (threadIdx.x == 0) state.next_tile = blockIdx.x;
#pragma unroll 1
  while (begin_tile<T, kRow>(args, state, k_tile, v_tile)) {
    const BwdBlock& block = state.block;
    if (block.own.empty()) continue;

    const auto copy_step = [&](const BwdStep<T>& step, uint32_t stage) {
      if (step.left > 0) {
        const auto copy = copy_tile<kThreads, kBlockM, kHeadDim, T>;
        copy(stage, step.q, args.q.row_stride, step.left, a.head_dim);
        copy(stage + StepTile::kBytes, step.dout, args.dout.row_stride, step.left, a.head_dim_v);
      }
      commit_copies();
    };

    float dk[kMTiles][kSumTiles][4], dv[kMTiles][kSumTiles][4];
    clear(dk);
    clear(dv);

    // dq of a step's rows, whose ds is complete.
    const auto add_dq = [&](const BwdStep<T>& step, uint32_t ds_tile) {
      const int row_warp = warp / kDqDimWarps;
      const int dim = warp % kDqDimWarps * 16;
      const int first_row = row_warp * 16 * kDqMTiles;
      const LaneAddress<WeightTile> ds_at = along_first<WeightTile>(ds_tile, 0, first_row);
      const LaneAddress<OwnTile> k_at = down_first<OwnTile>(k_tile, 0, dim);
      float dq[kDqMTiles][kDqNTiles][4];
      clear(dq);
      add_product<T, kBlockN / 16>(
          dq,
          [&](int k, uint32_t(&x)[kDqMTiles][4]) {
#pragma unroll
            for (int m = 0; m < kDqMTiles; ++m) load_matrices_transposed(x[m], ds_at.at(16 * k, 16 * m));
          },
          [&](int k, int j, uint32_t(&y)[4]) { load_matrices_transposed(y, k_at.at(16 * k, 16 * kDqDimWarps * j)); }
      );
      const int row = first_row + lane / 4;
      // Neighbouring lanes exchange pairs: each adds four neighbours, the even lane of one block, the odd lane of the next.
      const bool odd = lane % 2;
      const int column = dim + lane % 4 * 2 + (odd ? 6 : 0);
      const auto add_all = [&](int pitch, auto&& exists) {
        float* to = dq_sums + (step.row_offset + row) * pitch + column;
#pragma unroll
        for (int i = 0; i < 2 * kDqMTiles; ++i) {
#pragma unroll
          for (int n = 0; n < kDqNTiles; n += 2) {
            const int offset = n / 2 * 16 * kDqDimWarps;
            const float* left = &dq[i / 2][n][i % 2 * 2];
            const float* right = &dq[i / 2][n + 1][i % 2 * 2];
            const float x = __shfl_xor_sync(kFullWarp, odd ? left[0] : right[0], 1);
            const float y = __shfl_xor_sync(kFullWarp, odd ? left[1] : right[1], 1);
            if (exists(8 * i, offset)) {
              add_quad(
                  to + 8 * i * pitch + offset,
                  odd ? x : left[0],
                  odd ? y : left[1],
                  odd ? right[0] : x,
                  odd ? right[1] : y
              );
            }
          }
        }
      };
      if (step.left >= kBlockM && a.head_dim == kHeadDim) {
        add_all(kHeadDim, [](int, int) { return true; });
      } else {
        add_all(dq_pitch(a.head_dim), [&](int r, int c) { return row + r < step.left && column + c < a.head_dim; });
      }
    };

    uint32_t kept_k[kKeepsKv ? kDepth : 1][kMTiles][4];
    uint32_t kept_v[kKeepsKv ? kDepth : 1][kMTiles][4];
    const LaneAddress<OwnTile> own_k = down_first<OwnTile>(k_tile, warp_key);
    const LaneAddress<OwnTile> own_v = down_first<OwnTile>(v_tile, warp_key);
    if (state.steps[0].left > 0) {
      const float statistic = load_statistic<kBlockM>(args, delta, state.steps[0]);
      copy_step(state.steps[0], stages);
      if (threadIdx.x == 0) state.steps[1].set_after(state.steps[0], args, block, kBlockN, kBlockM);
      if (store_statistic(state.statistics[0], statistic)) state.unusual[0] = true;
      if constexpr (kKeepsKv) {
        wait_copies<1>();
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kDepth; ++k) {
#pragma unroll
          for (int m = 0; m < kMTiles; ++m) {
            load_matrices(kept_k[k][m], own_k.at(16 * m, 16 * k));
            load_matrices(kept_v[k][m], own_v.at(16 * m, 16 * k));
          }
        }
      }
    }

    int i = 0;
#pragma unroll 1
    for (; state.steps[i % 4].left > 0; ++i) {
      wait_copies<0>();
      __syncthreads();
      const BwdStep<T>& step = state.steps[i % 4];
      const BwdStep<T>& next = state.steps[(i + 1) % 4];
      const uint32_t q_tile = stages + i % kStages * 2 * StepTile::kBytes;
      const uint32_t dout_tile = q_tile + StepTile::kBytes;
      const uint32_t next_stage = stages + (i + 1) % kStages * 2 * StepTile::kBytes;
      const uint32_t ds_tile = ds_tiles + i % kStages * WeightTile::kBytes;
      if constexpr (kStages == 2) {
        if constexpr (kAlone) copy_step(next, next_stage);
        if (dq_first && i > 0 && dq_sums != nullptr)
          add_dq(state.steps[(i - 1) % 4], ds_tiles + (i - 1) % 2 * WeightTile::kBytes);
      }
      const float statistic = load_statistic<kBlockM>(args, delta, next);
      if (threadIdx.x == 0) {
        state.steps[(i + 2) % 4].set_after(next, args, block, kBlockN, kBlockM);
        state.unusual[(i + 2) % 4] = false;
      }
      const bool edge = step.edge || state.unusual[i % 4];
      const LaneAddress<WeightTile> weight_at = {WeightTile::offset(warp_key + lane / 4, warp_query) + lane % 4 * 4u};

      // Over the queries of the warp: weights, and if it is alone, gradients.
#pragma unroll 1
      for (int query = 0; query < kWarpQueries; query += kPart) {
        const int first = warp_query + query;
        const LaneAddress<WeightTile> ds_at = {ds_tile + (weight_at.address ^ (query / 8 * 16))};
        const LaneAddress<WeightTile> p_at = {p_tile + weight_at.address};
        if (edge && step.mask().hides_all(warp_key, kTile.warp_keys(), first, kPart)) {
          const uint32_t zero[kMTiles][kPart / 16][4] = {};
          store_weights(ds_at, 0, zero);
          if constexpr (!kAlone) store_weights(p_at, 0, zero);
          continue;
        }
        const LaneAddress<StepTile> q_rows = along_first<StepTile>(q_tile, first);
        const LaneAddress<StepTile> dout_rows = along_first<StepTile>(dout_tile, first);
        float p[kMTiles][kPart / 8][4], ds[kMTiles][kPart / 8][4];
        float2 shift[kPart / 8];
#pragma unroll
        for (int n = 0; n < kPart / 8; ++n) {
          const int column = first + 8 * n + lane % 4 * 2;
          const StepStatistics<kBlockM>& statistics = state.statistics[i % 2];
          shift[n] = *reinterpret_cast<const float2*>(statistics.shift + column);
          const float2 negative_delta = *reinterpret_cast<const float2*>(statistics.delta + column);
#pragma unroll
          for (int m = 0; m < kMTiles; ++m) {
            ds[m][n][0] = ds[m][n][2] = negative_delta.x;
            ds[m][n][1] = ds[m][n][3] = negative_delta.y;
          }
        }
        clear(p);
        const auto own_rows = [&](const auto& kept, const LaneAddress<OwnTile>& from) {
          return [&](int k, uint32_t(&x)[kMTiles][4]) {
#pragma unroll
            for (int m = 0; m < kMTiles; ++m) {
              if constexpr (kKeepsKv) {
#pragma unroll
                for (int i = 0; i < 4; ++i) x[m][i] = kept[k][m][i];
              } else {
                load_matrices(x[m], from.at(16 * m, 16 * k));
              }
            }
          };
        };
        const auto step_rows = [&](const LaneAddress<StepTile>& from) {
          return [&](int k, int j, uint32_t(&y)[4]) { load_matrices(y, from.at(16 * j, 16 * k)); };
        };
        add_product<T, kDepth>(p, own_rows(kept_k, own_k), step_rows(q_rows));
        add_product<T, kDepth>(ds, own_rows(kept_v, own_v), step_rows(dout_rows));

        const int lane_key = warp_key + lane / 4;
        const int lane_query = first + lane % 4 * 2;
        const auto shift_of = [&](int, int n, int e) { return e == 0 ? shift[n].x : shift[n].y; };
        if constexpr (!kPlain) {
          const int64_t distance = int64_t{step.begin} + lane_query + block.s.offset - block.own.begin - lane_key;
          apply_score_backward(p, ds, a, alibi_slope(a, block.at.batch, step.head), static_cast<float>(distance));
        }
        exponentiate(p, factor, shift_of);
        if (edge) hide_pairs(p, ds, shift_of, step.mask(), block.own_count(), lane_key, lane_query);
        weigh(ds, p);

        uint32_t packed_p[kMTiles][kPart / 16][4], packed_ds[kMTiles][kPart / 16][4];
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
          for (int k = 0; k < kPart / 16; ++k) {
            pack_operand<T>(packed_p[m][k], p[m], k);
            pack_operand<T>(packed_ds[m][k], ds[m], k);
          }
        }
        store_weights(ds_at, 0, packed_ds);
        if constexpr (kAlone) {
          const LaneAddress<StepTile> q_columns = down_first<StepTile>(q_tile, first);
          const LaneAddress<StepTile> dout_columns = down_first<StepTile>(dout_tile, first);
          const auto weights = [&](const auto& packed) {
            return [&](int k, uint32_t(&x)[kMTiles][4]) {
#pragma unroll
              for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
                for (int i = 0; i < 4; ++i) x[m][i] = packed[m][k][i];
              }
            };
          };
          const auto columns = [&](const LaneAddress<StepTile>& from) {
            return [&](int k, int j, uint32_t(&y)[4]) { load_matrices_transposed(y, from.at(16 * k, 16 * j)); };
          };
          add_product<T, kPart / 16>(dv, weights(packed_p), columns(dout_columns));
          add_product<T, kPart / 16>(dk, weights(packed_ds), columns(q_columns));
        } else {
          store_weights(p_at, 0, packed_p);
        }
      }

      if constexpr (!kAlone) {
        if constexpr (kStages == 2) copy_step(next, next_stage);
        sync_warps<kWarpSize * kSplit>(1 + warp / kSplit);
        const auto weights = [&](uint32_t tile_of_weights) {
          return [&, at = down_first<WeightTile>(tile_of_weights, warp_key)](int k, uint32_t(&x)[kMTiles][4]) {
#pragma unroll
            for (int m = 0; m < kMTiles; ++m) load_matrices(x[m], at.at(16 * m, 16 * k));
          };
        };
        const auto columns = [&](uint32_t tile_of_rows) {
          return [&, at = down_first<StepTile>(tile_of_rows, 0, member * 16)](int k, int j, uint32_t(&y)[4]) {
            load_matrices_transposed(y, at.at(16 * k, 16 * kSplit * j));
          };
        };
        if (!edge || !step.mask().hides_all(warp_key, kTile.warp_keys(), 0, kBlockM)) {
          add_product<T, kBlockM / 16>(dv, weights(p_tile), columns(dout_tile));
          add_product<T, kBlockM / 16>(dk, weights(ds_tile), columns(q_tile));
        }
      }

      if (store_statistic(state.statistics[(i + 1) % 2], statistic)) state.unusual[(i + 1) % 4] = true;
      if constexpr (kStages == 2) {
        if (!dq_first && i > 0 && dq_sums != nullptr)
          add_dq(state.steps[(i - 1) % 4], ds_tiles + (i - 1) % 2 * WeightTile::kBytes);
      }
      if constexpr (kStages == 1) {
        __syncthreads();
        copy_step(next, next_stage);
        if (dq_sums != nullptr) add_dq(step, ds_tile);
      }
    }
    if constexpr (kStages == 2) {
      __syncthreads();
      if (i > 0 && dq_sums != nullptr) add_dq(state.steps[(i - 1) % 4], ds_tiles + (i - 1) % 2 * WeightTile::kBytes);
    }

    const int own_count = block.own_count();
    const Range warp_rows = {
        block.own.begin + min(warp_key, own_count), min(block.own.begin + warp_key + 16 * kMTiles, block.own.end)};
    store_columns<T, kSplit>({args.dk, block.s.k, warp_rows, block.at.head, a.head_dim}, member, dk, a.scale);
    store_columns<T, kSplit>({args.dv, block.s.k, warp_rows, block.at.head, a.head_dim_v}, member, dv, 1.0f);
    if (!masks_pairs(a)) continue;
    // A barrier behind which every part of a row is stored; rarely there is more to do.
    if (!__syncthreads_or(!all_finite(dk) || !all_finite(dv))) continue;
    for (int i = threadIdx.x; i < kBlockN; i += kThreads) state.marks[i] = 0;
    __syncthreads();
#pragma unroll
    for (int row = 0; row < 2 * kMTiles; ++row) {
      if (!row_is_finite(dk, row) || !row_is_finite(dv, row)) state.marks[warp_key + lane / 4 + 8 * row] = 1;
    }
    __syncthreads();
#pragma unroll 1
    for (int key = warp; key < own_count; key += kTile.warps) {
      if (state.marks[key] == 0) continue;
      bwd_exact_key<T, kHeadDim>(args, delta, block.s, block.at.batch, block.at.head, block.own.begin + key, lane);
    }
  }
}

}  // namespace cuflash::cp_async
