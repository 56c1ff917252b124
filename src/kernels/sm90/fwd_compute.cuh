// SPDX-License-Identifier: MIT
// A warpgroup that computes: 64 query rows of each of the block's tiles.
//
// Scores of a step are multiplied while the values of the step before are, and softmax runs under the latter:
//
//   tensor cores  | s(n) = q k(n) | o += p v(n + 1) |                | s(n - 1) | o += p v(n) | ...
//   registers     | p of step n + 1                 | softmax of s(n)           | ...
//
// and with turns, the gap is filled by the products of other warpgroups, whose softmax runs under these.
#pragma once

#include "kernels/common/fragment_score.cuh"
#include "kernels/common/fragment_softmax.cuh"
#include "kernels/common/fwd_block.cuh"
#include "kernels/common/warp.h"
#include "kernels/sm90/fwd_store.cuh"
#include "kernels/sm90/tensor_map.h"
#include "kernels/sm90/wgmma.cuh"

namespace cuflash::sm90 {

// Warpgroups issue products one after the other. Each takes as many turns as the others.
template <bool kTakesTurns, int kGroups>
struct Turns {
  static constexpr bool kOn = kTakesTurns && kGroups > 1;
  int group;

  __device__ __forceinline__ void begin() const {  // the first group's turn
    if (group == kGroups - 1) pass();
  }
  __device__ __forceinline__ void wait() const {
    if constexpr (kOn) sync_threads<2 * kGroupThreads>(kTurn + group);
  }
  __device__ __forceinline__ void pass() const {
    if constexpr (kOn) arrive_threads<2 * kGroupThreads>(kTurn + (group == kGroups - 1 ? 0 : group + 1));
  }
};

// The blocks of a task's keys that all rows of the warp see whole. Rows behind the last one in use may be those of another
// sequence: nothing of them may move a reference or a factor, so they see nothing.
__device__ __forceinline__ Range clean_blocks(const Attention& a, const FwdTask& task, const Range& own, int block_n) {
  if (own.empty()) return {0, task.key_blocks};
  if (own.end - own.begin < 16 && (a.cu_seqlens_q != nullptr || a.seqused_q != nullptr)) return {0, 0};
  const Range all = WarpKeys::of(a, task.s, own, task.keys.begin).all;
  return {ceil_div(max(all.begin, 0), block_n), max(all.end, 0) / block_n};
}

// How many blocks at the end of a task's keys no row of the warpgroup sees: it leaves them out, up to `most`, and one at
// least is left.
__device__ __forceinline__ int unseen_blocks(
    const Attention& a, const FwdTask& task, const Range& rows, int block_n, int most
) {
  const int32_t end = WarpKeys::of(a, task.s, rows, task.keys.begin).any.end;
  return min(task.key_blocks - max(ceil_div(end, block_n), 1), most);
}

template <class T, int kRow, bool kPlain>
__device__ __forceinline__ void compute_tiles(
    const FwdArgs& args, const FwdMaps& maps, FwdState<kRow>& block, uint32_t shared, int group
) {
  constexpr FwdTile kTile = kFwdTiles[kRow];
  constexpr int kBlockN = kTile.block_n;
  constexpr int kHeadDim = kTile.head_dim;
  using QTile = Panels<kTile.block_m>;
  using KVTile = Panels<kBlockN>;
  const Attention& a = args.attention;
  const int lane = threadIdx.x % kWarpSize;
  const int warp_row = group * kGroupRows + threadIdx.x % kGroupThreads / kWarpSize * 16;
  const bool strangers = a.cu_seqlens_k != nullptr || a.seqused_k != nullptr;  // behind the keys in use

  RingPosition<1> q;
  RingPosition<kTile.stages> k, v;
  RingPosition<FwdState<kRow>::kTasks> taken, done;
  float s[1][kBlockN / 8][4];   // products, scores, weights
  uint32_t p[kBlockN / 16][4];  // weights, rounded
  float o[1][kHeadDim / 8][4];

  // The next task, and how many of its blocks this warpgroup leaves out. Whoever has the turn may leave out so many that the
  // next one is loaded without a turn of the others.
  constexpr int kMostUnseen = kTile.stages - 1;
  int next_unseen = 0;
  const auto take_task = [&] {
    block.task.wait_full(taken);
    const FwdTask* task = &block.tasks[taken.stage];
    taken.advance();
    next_unseen = 0;
    if (task->key_blocks > 0) {
      const Range rows = rows_of_task(*task, group * kGroupRows, kGroupRows);
      next_unseen = __shfl_sync(kFullWarp, unseen_blocks(a, *task, rows, kBlockN, kMostUnseen), 0);
    }
    return task;
  };
  const auto task_is_done = [&] {
    __syncwarp();
    block.task.release(done);
    done.advance();
  };
  // Waits for the first rows of a task. Blocks that are left out are released at once: k here, v when it is there.
  int unseen = 0;
  const auto enter = [&] {
    unseen = next_unseen;
    block.q.wait_full(q);
    block.k.wait_full(k);
    for (int i = 0; i < unseen; ++i) {
      __syncwarp();  // all lanes have seen it full: released, it may be so again before a late one looks
      block.k.release(k);
      k.advance();
      block.k.wait_full(k);
    }
  };
  const auto multiply_scores = [&] {
    // Else it is kept in registers, and comes from there to uniform ones at each step.
    const uint64_t rows = describe_rows(shared + kTile.q_offset() + made_anew(group) * kGroupRows * kRowBytes);
    const uint64_t keys = describe_rows(shared + kTile.k_offset() + k.stage * kTile.kv_bytes());
    begin_products();
#pragma unroll
    for (int step = 0; step < kHeadDim / kStep; ++step) {
      multiply<T>(s[0], offset_by(rows, QTile::along_rows(step)), offset_by(keys, KVTile::along_rows(step)), step > 0);
    }
    commit_products();
  };
  const auto scores_are_done = [&](bool last) {
    pin(s[0]);
    block.k.release(k);
    k.advance();
    if (last) {
      block.q.release(q);
      q.advance();
    }
  };
  // Gives back the values of blocks that were left out. Rows behind the last key in use may hold anything: the weights are 0,
  // but 0 times NaN is not.
  const auto prepare_values = [&](int count) {
    for (; unseen > 0; --unseen) {
      block.v.wait_full(v);
      __syncwarp();
      block.v.release(v);
      v.advance();
    }
    if (!strangers || count >= kBlockN) return;
    block.v.wait_full(v);
    const uint32_t values = shared + kTile.v_offset() + v.stage * kTile.kv_bytes();
    for (int i = threadIdx.x % kGroupThreads; i < (kBlockN - count) * (kHeadDim / 8); i += kGroupThreads) {
      clear_chunk(values + KVTile::offset(count + i / (kHeadDim / 8), i % (kHeadDim / 8) * 8));
    }
    publish_writes();
    sync_threads<kGroupThreads>(kGroup + group);
  };
  const auto add_values = [&](bool first) {
    const uint64_t values = describe_columns<kBlockN>(shared + kTile.v_offset() + v.stage * kTile.kv_bytes());
    begin_products();
#pragma unroll
    for (int step = 0; step < kBlockN / kStep; ++step) {
      multiply<T>(o[0], p[step], offset_by(values, KVTile::down_rows(step)), !first || step > 0);
    }
    commit_products();
  };
  const auto values_are_done = [&] {
    pin(o[0]);
    pin(p);
    block.v.release(v);
    v.advance();
  };
  const auto round_weights = [&] {
#pragma unroll
    for (int i = 0; i < kBlockN / 16; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float(&x)[4] = s[0][2 * i + j / 2];
        p[i][j] = pack<T>(x[j % 2 * 2], x[j % 2 * 2 + 1]);
      }
    }
  };

  const Turns<kTile.takes_turns, kTile.groups()> turns = {group};
  turns.begin();
  const FwdTask* task = take_task();
  while (task->key_blocks >= 0) {
    if (task->key_blocks == 0) {
      store_unseeing_rows<T>(args, *task, warp_row);
      task_is_done();
      task = take_task();
      continue;
    }
    enter();
    turns.wait();
    multiply_scores();
    turns.pass();
    // What takes a while is done under products.
    const Range own = rows_of_task(*task, warp_row, 16);
    const Range clean = clean_blocks(a, *task, own, kBlockN);
    TileSoftmax<1> softmax(kPlain ? a.scale * kLog2e : 1.0f);
    // What is in s becomes scores of block n.
    const auto finish_scores = [&](int n) {
      const auto key = [&] { return task->keys.begin + n * kBlockN + lane % 4 * 2; };
      if constexpr (!kPlain) {
        const float slope = alibi_slope(a, task->at.batch, task->at.head);
        apply_score(s, a, task->s, slope, own.begin + lane / 4, key());
      }
      if (n < clean.begin || n >= clean.end) {
        hide(s, a, task->s, own.begin + lane / 4, own.end, key());
      }
    };

    int n = __shfl_sync(kFullWarp, task->key_blocks, 0) - 1 - unseen;  // known to the compiler as the same in all lanes
    const int first_count = task->keys.end - task->keys.begin - n * kBlockN;  // keys of the first block, or more
    wait_products<0>();
    scores_are_done(n == 0);
    finish_scores(n);
    softmax.settle_first(s);
    softmax.weigh<0, kBlockN / 8>(s);
    round_weights();
#pragma unroll 1
    for (int i = 0; i < unseen; ++i) {
      turns.wait();
      turns.pass();
    }
    prepare_values(first_count);
    wait_products<0>();  // of none: for the positions of rings, as at the end of a tile
    bool first = true;
    bool keys_are_there = false;  // of the next step
#pragma unroll 1
    for (; n > 0; --n, first = false) {
      if (!keys_are_there) block.k.wait_full(k);
      turns.wait();
      multiply_scores();
      block.v.wait_full(v);
      add_values(first);
      turns.pass();
      wait_products<1>();
      scores_are_done(n == 1);
      finish_scores(n - 1);
      const bool moves = softmax.settle(s);
      softmax.weigh<0, kTile.early_blocks>(s);
      pin(s[0]);
      if (moves) {  // two waits, for ptxas moves one in front of the exponentials if nothing keeps it
        wait_products<0>();
        pin(o[0]);
        for_each_sum(o, [&](float& x, int i, int) { x *= softmax.rescale[i]; });
      } else {
        wait_products<0>();
      }
      values_are_done();
      keys_are_there = __all_sync(kFullWarp, block.k.is_full(k));  // an answer takes a while
      softmax.weigh<kTile.early_blocks, kBlockN / 8>(s);
      round_weights();
    }

    block.v.wait_full(v);
    turns.wait();
    add_values(first);
    turns.pass();
    float inverse[2];
    softmax.rows.finish();
    inverse_sums(softmax.rows, inverse);
    store_lse(args, task->s, task->at, own, softmax.rows, softmax.factor);
    const FwdTask* next = take_task();
    wait_products<0>();
    values_are_done();
    // The softmax has met huge scores, and from then on wants them multiplied, for which a step has no instructions.
    const bool wrong = kPlain && softmax.factor != a.scale * kLog2e;
    store_tile<T, kRow>(args, maps.o, *task, own, shared, group, softmax.rows, inverse, o, wrong);
    task_is_done();
    task = next;
    // None is left to wait for. But behind a wait ptxas takes the rings' positions as the same in all lanes, and computes
    // descriptors in uniform registers: without it a step has 50 instructions more, 6 % of the time.
    wait_products<0>();
  }
  if (threadIdx.x % kGroupThreads == 0) wait_stores_read();  // shared memory must last as long
}

}  // namespace cuflash::sm90
