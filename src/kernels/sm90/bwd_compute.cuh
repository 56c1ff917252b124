// SPDX-License-Identifier: MIT
// A warpgroup that computes: 64 of the block's keys. With s and dp of step i + 1 still to come, a step is
//
//   products      dq(i - 1) = ds k | dv += p^T dout | dk += ds^T q |  s(i + 1) = k q^T  |  dp(i + 1) = v dout^T
//   registers                      | dq(i - 1) to its stage        |                    | p(i + 1) | ds(i + 1)
//
// Warpgroups take turns at weights: the products of one run under the weights of the other, half a step apart. ds of both
// goes to shared memory, in three buffers: while one is written, the other warpgroup reads that of two steps before. Nobody
// waits for ds: a warpgroup that has its turn knows by this that the other one has ended the turn before.
#pragma once

#include "kernels/sm90/bwd_store.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace cuflash::sm90 {

template <class T, int kRow, bool kPlain>
struct BwdComputer {
  static constexpr BwdTile kTile = kBwdTiles[kRow];
  static constexpr int kHeadDim = kTile.head_dim;
  static constexpr int kBlockM = kTile.block_m;
  static constexpr int kBlockN = kTile.block_n;
  using KVTile = Panels<kBlockN>;
  using RowTile = Panels<kBlockM>;
  using DsTile = Panels<kBlockN>;  // a key's row of query rows
  using Step = BwdStep<kBlockM>;

  const BwdArgs& args;
  BwdBlock<kRow>& block;
  uint32_t shared;
  int group;
  float factor;  // from products to scores in base 2

  uint32_t count = 0;  // of the step ahead, whose weights come next
  RingPosition<1> kv;

  float s[kBlockM / 8][4], dp[kBlockM / 8][4];       // products, weights
  uint32_t p[kBlockM / 16][4], ds[kBlockM / 16][4];  // weights, rounded
  float dk[kHeadDim / 8][4], dv[kHeadDim / 8][4];
  float dq[8][4];  // 64 rows and columns, the warpgroup's

  // Places of what is of a step `back` behind the step ahead.
  __device__ __forceinline__ RingPosition<kTile.q_stages> q_at(int back) const {
    return ring_position<kTile.q_stages>(count - back);
  }
  __device__ __forceinline__ RingPosition<kTile.dout_stages> dout_at(int back) const {
    return ring_position<kTile.dout_stages>(count - back);
  }
  __device__ __forceinline__ RingPosition<kTile.step_stages> step_at() const {
    return ring_position<kTile.step_stages>(count);
  }
  __device__ __forceinline__ uint32_t q_tile(int back) const {
    return shared + kTile.q_offset() + q_at(back).stage * kTile.rows_bytes();
  }
  __device__ __forceinline__ uint32_t dout_tile(int back) const {
    return shared + kTile.dout_offset() + dout_at(back).stage * kTile.rows_bytes();
  }
  __device__ __forceinline__ uint32_t ds_tile(int back) const {
    return shared + kTile.ds_offset() + (count - back) % kTile.ds_stages() * kTile.ds_bytes();
  }

  __device__ __forceinline__ void wait_turn() const { sync_threads<2 * kGroupThreads>(kBwdTurn + group); }
  __device__ __forceinline__ void pass_turn() const { arrive_threads<2 * kGroupThreads>(kBwdTurn + 1 - group); }

  __device__ __forceinline__ void issue_s() {
    const uint64_t keys = describe_rows(shared + kTile.k_offset() + group * kGroupRows * kRowBytes);
    const uint64_t queries = describe_rows(q_tile(0));
    begin_products();
#pragma unroll
    for (int i = 0; i < kHeadDim / kStep; ++i) {
      multiply<T>(s, offset_by(keys, KVTile::along_rows(i)), offset_by(queries, RowTile::along_rows(i)), i > 0);
    }
    commit_products();
  }

  __device__ __forceinline__ void issue_dp() {
    const uint64_t keys = describe_rows(shared + kTile.v_offset() + group * kGroupRows * kRowBytes);
    const uint64_t queries = describe_rows(dout_tile(0));
    begin_products();
#pragma unroll
    for (int i = 0; i < kHeadDim / kStep; ++i) {
      multiply<T>(dp, offset_by(keys, KVTile::along_rows(i)), offset_by(queries, RowTile::along_rows(i)), i > 0);
    }
    commit_products();
  }

  template <bool kFirst>
  __device__ __forceinline__ void issue_dv() {
    const uint64_t queries = describe_columns<kBlockM>(dout_tile(1));
    begin_products();
#pragma unroll
    for (int i = 0; i < kBlockM / kStep; ++i) {
      multiply<T>(dv, p[i], offset_by(queries, RowTile::down_rows(i)), !kFirst || i > 0);
    }
    commit_products();
  }

  template <bool kFirst>
  __device__ __forceinline__ void issue_dk() {
    const uint64_t queries = describe_columns<kBlockM>(q_tile(1));
    begin_products();
#pragma unroll
    for (int i = 0; i < kBlockM / kStep; ++i) {
      multiply<T>(dk, ds[i], offset_by(queries, RowTile::down_rows(i)), !kFirst || i > 0);
    }
    commit_products();
  }

  // The warpgroup's 64 query rows, or 64 columns, of dq of the step `back` behind the step ahead.
  __device__ __forceinline__ void issue_dq(int back) {
    constexpr bool kOwnRows = kBlockM == 2 * kGroupRows;
    const uint32_t rows = ds_tile(back) + (kOwnRows ? group * DsTile::kBytes : 0);
    const uint32_t keys = shared + kTile.k_offset() + (kOwnRows ? 0 : group * KVTile::kBytes);
    const uint64_t a = describe_columns<kBlockN>(rows);
    const uint64_t b = describe_columns<kBlockN>(keys);
    begin_products();
#pragma unroll
    for (int i = 0; i < kBlockN / kStep; ++i) {
      multiply_columns<T>(dq, offset_by(a, DsTile::down_rows(i)), offset_by(b, KVTile::down_rows(i)), i > 0);
    }
    commit_products();
  }

  __device__ __forceinline__ void stage_dq() {
    sync_threads<kGroupThreads + 32>(kDqTaken + group);
    const uint32_t to = shared + kTile.dq_offset() + group * kTile.dq_bytes() + threadIdx.x % kGroupThreads * 16;
#pragma unroll
    for (int n = 0; n < 8; ++n) store_floats(to + n * kGroupThreads * 16, dq[n]);
    publish_writes();
    arrive_threads<kGroupThreads + 32>(kDqStaged + group);
  }

  // Products become weights; dp may still be coming.
  __device__ __forceinline__ void weigh_step() {
    const int lane = threadIdx.x % kWarpSize;
    const int warp_key = group * kGroupRows + threadIdx.x % kGroupThreads / 32 * 16;
    const int lane_key = warp_key + lane / 4;
    const int lane_row = lane % 4 * 2;
    const Step& now = block.steps[step_at().stage];
    const float2* shift = now.statistics.shift + lane % 4;
    const float2* delta = now.statistics.delta + lane % 4;
    const auto hide = [&](auto& x) { hide_pairs(x, SeenColumns(now.mask, now.key_count, lane_key, lane_row)); };
    const bool unusual = now.unusual, edge = now.edge;
    RowPairs<kBlockM / 8> pairs;
    if constexpr (kPlain) {
      pairs.read_ahead(shift);
      wait_turn();
      wait_products<1>();
      pin(s);
      pairs.read_rest(shift);
      exponentiate(s, factor, pairs);
      pairs.read_ahead(delta);
    } else {
      wait_turn();
      wait_products<0>();
      pin(s);
      pin(dp);
      pairs.read(delta);
      subtract_delta(dp, pairs);
      const float distance = now.diagonal + static_cast<float>(lane_row - lane_key);
      apply_score_backward(s, dp, args.attention, now.slope, distance);
      pairs.read(shift);
      exponentiate(s, factor, pairs);
    }
    // The weights that do not wait for dp. The branches keep the wait from moving in front of the exponentials.
    if (unusual) hide_rows<true>(s, shift);
    if (edge) hide(s);
    if constexpr (kPlain) {
      wait_products<0>();
      pin(dp);
      pairs.read_rest(delta);
      subtract_delta(dp, pairs);
    }
    if (unusual) hide_rows<false>(dp, shift);
    if (edge) hide(dp);
    weigh(dp, s);
    round_weights<T>(p, s);
    round_weights<T>(ds, dp);
    __syncwarp();
    block.step.release(step_at());

    // Rows of ds^T: lane l has the address of row l % 8 of block l / 8, of two blocks of keys by two of query rows.
    const int key = warp_key + lane % 16;
    const uint32_t to = ds_tile(0);
#pragma unroll
    for (int i = 0; i < kBlockM / 16; ++i) {
      store_blocks((to + DsTile::offset(key, i / 4 * 64 + lane / 16 * 8)) ^ (i % 4 * 32), ds[i]);
    }
    publish_writes();
    pass_turn();
    ++count;
  }

  // The next step's scores. Its statistics have come, too.
  __device__ __forceinline__ void begin_scores() {
    block.step.wait_full(step_at());
    block.q.wait_full(q_at(0));
    issue_s();
  }
  __device__ __forceinline__ void weigh_scores() {
    block.dout.wait_full(dout_at(0));
    issue_dp();
    weigh_step();
  }

  // The first step's weights.
  __device__ __forceinline__ void begin() {
    block.k.wait_full(kv);
    block.v.wait_full(kv);
    begin_scores();
    weigh_scores();
  }

  template <bool kFirst, bool kLast>
  __device__ __forceinline__ void turn() {
    count = __shfl_sync(kFullWarp, count, 0);  // known to the compiler as the same in all lanes: for uniform registers
    if constexpr (!kFirst) issue_dq(2);
    issue_dv<kFirst>();
    // Before dk is issued, which would take as long as dv.
    if constexpr (!kFirst) {
      wait_products<1>();
      pin(dq);
      stage_dq();
    }
    issue_dk<kFirst>();
    if constexpr (!kLast) begin_scores();
    wait_products<kLast ? 1 : 2>();
    pin(dv);
    pin(p);
    block.dout.release(dout_at(1));
    wait_products<kLast ? 0 : 1>();
    pin(dk);
    pin(ds);
    block.q.release(q_at(1));
    if constexpr (!kLast) weigh_scores();
  }

  // dq of the last step, when the other warpgroup's ds of it has come.
  __device__ __forceinline__ void end() {
    block.v.release(kv);
    wait_turn();
    pass_turn();
    issue_dq(1);
    wait_products<0>();
    pin(dq);
    block.k.release(kv);
    kv.advance();
    stage_dq();
  }

  __device__ __forceinline__ void sum(int steps) {
    begin();
    if (steps == 1) {
      turn<true, true>();
    } else {
      turn<true, false>();
#pragma unroll 1
      for (int i = 2; i < steps; ++i) turn<false, false>();
      turn<false, true>();
    }
    end();
  }
};

template <class T, int kRow, bool kPlain>
__device__ __forceinline__ void bwd_compute_tiles(
    const BwdArgs& args, const float* delta, BwdBlock<kRow>& block, uint32_t shared, int group
) {
  using Computer = BwdComputer<T, kRow, kPlain>;
  const Attention& a = args.attention;
  Computer computer = {.args = args, .block = block, .shared = shared, .group = group};
  computer.factor = kPlain ? a.scale * kLog2e : 1.0f;
  BwdTaskReader<kRow> reader = {block};
  if (group == 1) computer.pass_turn();  // the first turn is the first warpgroup's
  for (;;) {
    const BwdTask& task = reader.take();
    const int steps = __shfl_sync(kFullWarp, task.steps, 0);  // known to the compiler as the same in all lanes
    if (steps < 0) break;
    if (steps == 0) {
      store_zero_keys<T>(args, task, warp_keys(task, group));
    } else {
      computer.sum(steps);
      store_keys<T, Computer::kHeadDim>(args, delta, task, warp_keys(task, group), computer.dk, computer.dv);
    }
    reader.done();
  }
}

}  // namespace cuflash::sm90
