// SPDX-License-Identifier: MIT
// What the wmma room does, with fragments whose layout is known (PTX ISA, mma.m16n8k16): scores stay in registers from
// one product to the next, since the sums of the first are, rounded, operand a of the second.
//
//                 keys ->  64 per stage, 32 at a time
//   128 query   +--------+     a warp owns 32 query rows; a quad of lanes shares a row
//   rows per    | warp 0 |     1. s = q k^T     by ldmatrix, q kept where registers allow: each block of k meets 32 rows
//   block,      +--------+     2. softmax       in registers, one vote whether a reference moves
//   4 warps     |  ...   |     3. o += p v      p in registers, v by ldmatrix.trans
//               +--------+
//
//   k and v of a stage are copied (cp.async) one stage ahead; one barrier per stage says that its copies have arrived and
//   that the previous stage may be overwritten:
//
//     copies    | k, v (n + 1)                          | k, v (n + 2)
//     warp      | s softmax o, s softmax o (stage n)    | ...
//               ^ wait, barrier                         ^ wait, barrier
//
// Within a stage the warps of a block run freely, and up to head_dim 128 two blocks share an SM, so that the softmax of
// one warp runs under the products of another. A warp leaves out steps that its rows do not see, and masks only those that
// the edge of the mask crosses. Rows of o that come out as NaN or infinite under a mask are computed again by the
// definition (common/exact_rows.cuh). What limits it: see docs/kernels/cp_async.md.
//
// With `split` (head_dim 256), pairs of warps share 32 rows: 16 rows a warp would read shared memory twice as often as the
// products allow. Each has half of a step's keys and half of o's columns, and weights pass through shared memory.
#pragma once

#include "kernels/common/exact_rows.cuh"
#include "kernels/common/fragment_finish.cuh"
#include "kernels/common/fragment_score.cuh"
#include "kernels/common/fragment_softmax.cuh"
#include "kernels/common/fragment_store.cuh"
#include "kernels/common/fwd_block.cuh"
#include "kernels/common/mask.h"
#include "kernels/common/tile_coord.h"
#include "kernels/cp_async/fwd_products.cuh"
#include "kernels/cp_async/launchers.h"
#include "kernels/cp_async/load.cuh"
#include "launch.cuh"

namespace cuflash::cp_async {

// What warps that share rows tell each other: of each row a number, the highest score of a step or in the end the sum.
template <int kWarps, int kRows>
struct PairBoard {
  float number[2][kWarps][kRows];  // for steps in turn: a warp may write the next one while another reads
  int moves[2][kWarps];
  unsigned marked[kWarps];

  template <int kLaneRows>
  __device__ __forceinline__ void note(int parity, int warp, int lane, const float (&x)[kLaneRows]) {
    if (lane % 4 != 0) return;
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) number[parity][warp][lane / 4 + 8 * i] = x[i];
  }
  template <int kLaneRows>
  __device__ __forceinline__ void join(int parity, int warp, int lane, float (&x)[kLaneRows]) const {
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) x[i] = fmaxf(x[i], number[parity][warp][lane / 4 + 8 * i]);
  }
  template <int kLaneRows>
  __device__ __forceinline__ void add(int parity, int warp, int lane, float (&x)[kLaneRows]) const {
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) x[i] += number[parity][warp][lane / 4 + 8 * i];
  }
};

template <class T, int kRow>
__global__ void __launch_bounds__(kFwdTiles[kRow].threads(), kFwdTiles[kRow].min_blocks)
    fwd_kernel(const FwdArgs args) {
  constexpr FwdTile kTile = kFwdTiles[kRow];
  constexpr int kThreads = kTile.threads();
  constexpr int kHeadDim = kTile.head_dim;
  constexpr int kMTiles = kTile.m_tiles;
  constexpr int kWarpRows = 16 * kMTiles;
  constexpr int kSplit = kTile.split;
  constexpr bool kAlone = kSplit == 1;
  constexpr int kKeys = kTile.step_n / kSplit;       // of a step, whose scores a warp computes
  constexpr int kColumns = kTile.head_dim / kSplit;  // of o that a warp sums
  constexpr int kStages = kTile.stages;
  constexpr int kStep = kTile.step_n;
  constexpr int kDepth = kHeadDim / 16;
  constexpr int kAhead = kMTiles == 1 || !kAlone ? 3 : 2;
  using QTile = SwizzledTile<kTile.block_m, kHeadDim>;
  using KTile = SwizzledTile<kTile.block_n, kHeadDim>;
  constexpr uint32_t kStageBytes = 2 * KTile::kBytes;
  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t stages = shared_address(shared);
  const uint32_t q_tile = stages + (kTile.q_in_registers ? kStages - 1 : kStages) * kStageBytes;
  using Block = FwdBlock<kTile.warps()>;
  static_assert(sizeof(Block) <= kBlockStateBytes);
  Block& block = *reinterpret_cast<Block*>(shared + kTile.tile_bytes());
  using PTile = SwizzledTile<kWarpRows, kStep>;
  using Board = PairBoard<kTile.warps(), kWarpRows>;
  const uint32_t p_tiles = stages + kStages * kStageBytes + (kTile.q_in_registers ? 0 : QTile::kBytes);
  Board& board = *reinterpret_cast<Board*>(shared + kTile.tile_bytes() + kBlockStateBytes);
  static_assert(kAlone || kTile.tile_bytes() + kBlockStateBytes + sizeof(Board) <= kTile.shared_bytes());
  const int warp = threadIdx.x / kWarpSize;
  const int member = warp % kSplit;
  const int group = warp / kSplit;
  const int warp_row = group * kWarpRows;
  int parity = 0;
  const int lane = threadIdx.x % kWarpSize;

  const Attention& a = args.attention;
  const int32_t blocks_per_head = ceil_div(a.seqlen_q, kTile.block_m);
  const int64_t tiles = num_tiles(a.batch, a.num_heads, blocks_per_head);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    // With a mask, longest blocks first: with a causal one those are the last.
    TileCoord at = masks_pairs(a) ? tile_coord_in_groups(tile, a.batch, a.num_heads, blocks_per_head)
                                  : tile_coord(tile, a.num_heads, blocks_per_head);
    if (masks_pairs(a)) at.block = blocks_per_head - 1 - at.block;
    const Sequence s = sequence_of(a, at.batch);
    const Range rows = block_rows(at.block, kTile.block_m, s.q.length);
    if (rows.empty()) continue;
    const Range keys = visible_keys_of_rows(a, s, rows.begin, rows.end);
    const int32_t key_count = max(keys.end - keys.begin, 0);
    const int32_t head_k = key_head(a, at.head);

    using Stream = TileStream<T, kThreads, kTile.block_n, kHeadDim>;
    Stream k_stream(row_pointer<T>(args.k, s.k, keys.begin, head_k), args.k.row_stride);
    Stream v_stream(row_pointer<T>(args.v, s.k, keys.begin, head_k), args.v.row_stride);
    const auto copy_stage = [&](int32_t n) {
      if (n < key_count) {
        const uint32_t to = stages + n / kTile.block_n % kStages * kStageBytes;
        k_stream.copy(to, args.k.row_stride, key_count - n, a.head_dim);
        v_stream.copy(to + KTile::kBytes, args.v.row_stride, key_count - n, a.head_dim_v);
      }
      commit_copies();
    };
    const auto own_rows = [&](const Range& all) {
      return Range{
          all.begin + min(warp_row, all.end - all.begin), all.begin + min(warp_row + kWarpRows, all.end - all.begin)};
    };

    __syncthreads();  // the previous block's last step is done
    using QStream = TileStream<T, kThreads, kTile.block_m, kHeadDim>;
    QStream(row_pointer<T>(args.q, s.q, rows.begin, at.head), args.q.row_stride)
        .copy(q_tile, args.q.row_stride, rows.end - rows.begin, a.head_dim);
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) copy_stage(stage * kTile.block_n);
    if (threadIdx.x == 0) {
      block.at = at;
      block.s = s;
      block.rows = rows;
      block.keys = keys;
    }
    if (lane == 0) block.seen[warp] = WarpKeys::of(a, s, own_rows(rows), keys.begin);

    TileSoftmax<kMTiles> softmax(is_plain(a) ? a.scale * kLog2e : 1.0f);
    float o[kMTiles][kColumns / 8][4];
    clear(o);
    QOperand<T, QTile, kMTiles, kDepth, kTile.q_in_registers> q;
    if (kTile.q_in_registers || key_count == 0) {  // without keys, no barrier follows that `block` is read behind
      wait_copies<kStages - 2>();
      __syncthreads();
    }
    q.load(q_tile, warp_row);

#pragma unroll 1
    for (int32_t n = 0; n < key_count; n += kTile.block_n) {
      wait_copies<kStages - 2>();
      __syncthreads();
      copy_stage(n + (kStages - 1) * kTile.block_n);
      const uint32_t stage = stages + n / kTile.block_n % kStages * kStageBytes;
#pragma unroll 1
      for (int step = 0; step < kTile.block_n; step += kStep) {
        const int32_t first = n + step;
        const WarpKeys seen = block.seen[warp];
        if (first >= seen.any.end || first + kStep <= seen.any.begin) continue;
        float p[kMTiles][kKeys / 8][4];
        multiply_scores<T, kAhead, KTile>(p, q, along_first<KTile>(stage, step + member * kKeys));
        const int32_t lane_key = first + member * kKeys + lane % 4 * 2;
        if (softmax.factor == 1.0f) {
          const float slope = alibi_slope(a, block.at.batch, block.at.head);
          apply_score(p, a, block.s, slope, block.rows.begin + warp_row + lane / 4, block.keys.begin + lane_key);
        }
        if (first < seen.all.begin || first + kStep > seen.all.end) {
          const Range own = own_rows(block.rows);
          hide(p, a, block.s, own.begin + lane / 4, own.end, block.keys.begin + lane_key);
        }
        const auto rescale_sums = [&] { for_each_sum(o, [&](float& x, int i, int) { x *= softmax.rescale[i]; }); };
        const LaneAddress<KTile> values = down_first<KTile>(stage + KTile::kBytes, step, member * kColumns);
        if constexpr (kAlone) {
          if (softmax.settle(p)) rescale_sums();
          softmax.template weigh<0, kKeys / 8>(p);
          add_values<T, kAhead, kStep / 16>(
              o,
              [&](int k, uint32_t(&x)[kMTiles][4]) {
#pragma unroll
                for (int m = 0; m < kMTiles; ++m) pack_operand<T>(x[m], p[m], k);
              },
              values
          );
        } else {
          // Weights are computed with the references as they are; only if one of the warps has to move its own, which is
          // rare, both agree on new ones and write once more.
          const uint32_t p_tile = p_tiles + (group * 2 + parity) * PTile::kBytes;
          const auto store_weights = [&] {
            const LaneAddress<PTile> to = {
                p_tile + PTile::offset(lane / 4, member * kKeys) + static_cast<uint32_t>(lane % 4 * 4)};
#pragma unroll
            for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
              for (int n = 0; n < kKeys / 8; ++n) {
                store_pair(to.at(16 * m, 0) ^ (n * 16), pack<T>(p[m][n][0], p[m][n][1]));
                store_pair(to.at(16 * m + 8, 0) ^ (n * 16), pack<T>(p[m][n][2], p[m][n][3]));
              }
            }
          };
          float highest[2 * kMTiles];
          const bool moves = !softmax.limits.hold(p) && softmax.rows.look(p, softmax.factor, highest);
          if (lane == 0) board.moves[parity][warp] = moves;
          if (moves) board.note(parity, warp, lane, highest);
          if (!moves) {
            softmax.template weigh<0, kKeys / 8>(p);
            store_weights();
          }
          sync_warps<kWarpSize * kSplit>(1 + group);
          const bool partner_moves = board.moves[parity][warp ^ 1];
          if (moves || partner_moves) {
            if (!moves) {  // none of its scores would move a reference
#pragma unroll
              for (float& row : highest) row = kNegativeInfinity<float>;
            }
            if (partner_moves) board.join(parity, warp ^ 1, lane, highest);
            const float put = softmax.move(highest);
            rescale_sums();
            if (moves) {
              for_each_sum(p, [&](float& x, int, int) { x *= put; });
              softmax.template weigh<0, kKeys / 8>(p);
            } else {
              for_each_sum(p, [&](float& x, int i, int) { x *= softmax.rescale[i]; });
            }
            store_weights();
            sync_warps<kWarpSize * kSplit>(1 + group);
          }
          add_values<T, kAhead, kStep / 16>(
              o,
              [&, from = down_first<PTile>(p_tile, 0)](int k, uint32_t(&x)[kMTiles][4]) {
#pragma unroll
                for (int m = 0; m < kMTiles; ++m) load_matrices(x[m], from.at(16 * m, 16 * k));
              },
              values
          );
          parity ^= 1;
        }
      }
    }

    RowStates<kMTiles>& state = softmax.rows;
    state.finish();
    if constexpr (!kAlone) {
      board.note(parity, warp, lane, state.sum);
      sync_warps<kWarpSize * kSplit>(1 + group);
      board.add(parity, warp ^ 1, lane, state.sum);
      parity ^= 1;
    }
    float inverse[2 * kMTiles];
    inverse_sums(state, inverse);
    normalise(o, inverse);
    const Range own = own_rows(block.rows);
    const bool check = masks_pairs(a);
    unsigned marked = check ? rows_to_redo(o, state, own) : 0;
    if (member == 0) store_lse(args, block.s, block.at, own, state, softmax.factor);
    store_rows<T>({args.o, block.s.q, own, block.at.head, a.head_dim_v}, member * kColumns, o);
    if constexpr (kAlone) {
      __syncwarp();  // rows are written twice, by different lanes
    } else if (check) {
      board.marked[warp] = marked;
      sync_warps<kWarpSize * kSplit>(1 + group);
      marked = member == 0 ? marked | board.marked[warp ^ 1] : 0;
    }
#pragma unroll 1
    for (; marked != 0; marked &= marked - 1) {
      fwd_exact_row<T, kHeadDim>(args, block.s, block.at, own.begin + __ffs(marked) - 1, lane);
    }
  }
}

template <class T, int kHeadDim>
Status launch_fwd(const FwdArgs& args, const Plan& plan, const LaunchContext& context) {
  return with_tile<kFwdTiles, kHeadDim>(plan, [&]<int kRow>() {
    constexpr FwdTile kTile = kFwdTiles[kRow];
    const LaunchShape shape = {plan.query_blocks, kTile.threads(), kTile.shared_bytes()};
    return launch(context, "cp_async fwd", fwd_kernel<T, kRow>, shape, args);
  });
}

}  // namespace cuflash::cp_async
