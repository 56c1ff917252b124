// SPDX-License-Identifier: MIT
// Warpgroups that split the roles: dk and dv of 64 keys are, at head_dim 256, all the sums that a thread has room for in two
// warpgroups, so one has dv and what comes before it, the other dk.
//
//              group 0                               group 1
//   products   s = k q^T                             dp = v dout^T
//   weights    p, rounded for dv, as it is to -----> ds = p (dp - delta), rounded, to shared memory
//   sums       dv += p^T dout                        dk += ds^T q
//   dq         columns 0 to 127 of ds k, in two      columns 128 to 255
//
// A turn of either, the products of its step being done:
//
//   products    dq(i - 1), second part | sums(i)           | dq(i), first part | s or dp (i + 1)
//   registers   weights(i)             | dq(i - 1) to its stage                | dq(i) to its stage
//
// Nobody waits for buffers of p and ds to become free. p(i) is written by who has read ds(i - 1), which was written by who
// had read p(i - 1). ds has two buffers: who writes ds(i) has p(i), which was written behind the last product with ds(i - 2).
#pragma once

#include "kernels/sm90/bwd_store.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace cuflash::sm90 {

template <class T, int kRow, bool kPlain, int kGroup>
struct BwdSplitComputer {
  static constexpr BwdTile kTile = kBwdTiles[kRow];
  static constexpr bool kHasP = kGroup == 0;
  static constexpr bool kDqFirst = kHasP && !kPlain;  // slopes of scores take the registers of dq
  static constexpr int kHeadDim = kTile.head_dim;
  static constexpr int kBlockM = kTile.block_m;
  static constexpr int kBlockN = kTile.block_n;
  using KVTile = Panels<kBlockN>;
  using RowTile = Panels<kBlockM>;
  using DsTile = Panels<kBlockN>;  // a key's row of query rows
  using Step = BwdStep<kBlockM>;
  static_assert(kBlockN == kGroupRows && kBlockM == kGroupRows && kTile.dq_parts() == 2);

  const BwdArgs& args;
  BwdBlock<kRow>& block;
  uint32_t shared;
  float factor;  // from products to scores in base 2

  uint32_t count = 0;  // of the step whose weights come next
  RingPosition<1> kv;

  float x[kBlockM / 8][4];            // products: s or dp; weights
  uint32_t weights[kBlockM / 16][4];  // p or ds, rounded
  float sums[kHeadDim / 8][4];        // dv or dk
  float dq[kTile.kDqColumns / 8][4];

  // Rows that are multiplied with keys, and rows that are summed: q and dout, or dout and q.
  __device__ __forceinline__ auto& factor_rows() const {
    if constexpr (kHasP)
      return block.q;
    else
      return block.dout;
  }
  __device__ __forceinline__ auto& summed_rows() const {
    if constexpr (kHasP)
      return block.dout;
    else
      return block.q;
  }
  static constexpr int kFactorStages = kHasP ? kTile.q_stages : kTile.dout_stages;
  static constexpr int kSummedStages = kHasP ? kTile.dout_stages : kTile.q_stages;
  static constexpr int kFactorOffset = kHasP ? kTile.q_offset() : kTile.dout_offset();
  static constexpr int kSummedOffset = kHasP ? kTile.dout_offset() : kTile.q_offset();

  __device__ __forceinline__ RingPosition<kFactorStages> factor_at() const {
    return ring_position<kFactorStages>(count);
  }
  __device__ __forceinline__ RingPosition<kSummedStages> summed_at() const {
    return ring_position<kSummedStages>(count);
  }
  __device__ __forceinline__ RingPosition<kTile.step_stages> step_at() const {
    return ring_position<kTile.step_stages>(count);
  }
  __device__ __forceinline__ uint32_t ds_tile(int back) const {
    return shared + kTile.ds_offset() + (count - back) % kTile.ds_stages() * kTile.ds_bytes();
  }

  __device__ __forceinline__ void issue_products() {
    const uint64_t keys = describe_rows(shared + (kHasP ? kTile.k_offset() : kTile.v_offset()));
    const uint64_t queries = describe_rows(shared + kFactorOffset + factor_at().stage * kTile.rows_bytes());
    begin_products();
#pragma unroll
    for (int i = 0; i < kHeadDim / kStep; ++i) {
      multiply<T>(x, offset_by(keys, KVTile::along_rows(i)), offset_by(queries, RowTile::along_rows(i)), i > 0);
    }
    commit_products();
  }

  template <bool kFirst>
  __device__ __forceinline__ void issue_sums() {
    const uint64_t queries = describe_columns<kBlockM>(shared + kSummedOffset + summed_at().stage * kTile.rows_bytes());
    begin_products();
#pragma unroll
    for (int i = 0; i < kBlockM / kStep; ++i) {
      multiply<T>(sums, weights[i], offset_by(queries, RowTile::down_rows(i)), !kFirst || i > 0);
    }
    commit_products();
  }

  // A part of the warpgroup's columns of dq, of the step `back` behind.
  template <int kPart>
  __device__ __forceinline__ void issue_dq(int back) {
    constexpr int kColumns = kGroup * kTile.dq_parts() + kPart;
    static_assert(kTile.kDqColumns == kPanel);
    const uint64_t a = describe_columns<kBlockN>(ds_tile(back));
    const uint64_t b = describe_columns<kBlockN>(shared + kTile.k_offset() + kColumns * KVTile::kBytes);
    begin_products();
#pragma unroll
    for (int i = 0; i < kBlockN / kStep; ++i) {
      multiply_columns<T>(dq, offset_by(a, DsTile::down_rows(i)), offset_by(b, KVTile::down_rows(i)), i > 0);
    }
    commit_products();
  }

  __device__ __forceinline__ void stage_dq() {
    pin(dq);
    sync_threads<kGroupThreads + 32>(kDqTaken + kGroup);
    const uint32_t to = shared + kTile.dq_offset() + kGroup * kTile.dq_bytes() + threadIdx.x % kGroupThreads * 16;
#pragma unroll
    for (int n = 0; n < kTile.kDqColumns / 8; ++n) store_floats(to + n * kGroupThreads * 16, dq[n]);
    publish_writes();
    arrive_threads<kGroupThreads + 32>(kDqStaged + kGroup);
  }

  // What group 1 multiplies with dp - delta.
  __device__ __forceinline__ void give_p(const float (&p)[kBlockM / 8][4]) {
    float4* to = block.p + threadIdx.x % kGroupThreads;
#pragma unroll
    for (int n = 0; n < kBlockM / 8; ++n) to[n * kGroupThreads] = make_float4(p[n][0], p[n][1], p[n][2], p[n][3]);
    arrive_threads<2 * kGroupThreads>(kPGiven);
  }
  __device__ __forceinline__ void take_p() {
    const float4* from = block.p + threadIdx.x % kGroupThreads;
    sync_threads<2 * kGroupThreads>(kPGiven);
#pragma unroll
    for (int n = 0; n < kBlockM / 8; ++n) {
      const float4 p = from[n * kGroupThreads];
      x[n][0] *= p.x;
      x[n][1] *= p.y;
      x[n][2] *= p.z;
      x[n][3] *= p.w;
    }
  }

  // Rows of ds^T: lane l has the address of row l % 8 of block l / 8, of two blocks of keys by two of query rows.
  __device__ __forceinline__ void give_ds() {
    const int lane = threadIdx.x % kWarpSize;
    const int key = threadIdx.x % kGroupThreads / 32 * 16 + lane % 16;
    const uint32_t to = ds_tile(0) + DsTile::offset(key, lane / 16 * 8);
#pragma unroll
    for (int i = 0; i < kBlockM / 16; ++i) store_blocks(to ^ (i * 32), weights[i]);
    publish_writes();
    arrive_threads<2 * kGroupThreads>(kDsGiven);
  }
  __device__ __forceinline__ void wait_ds() const {
    if constexpr (kHasP) {
      sync_threads<2 * kGroupThreads>(kDsGiven);
    } else {
      sync_threads<kGroupThreads>(kDsWritten);
    }
  }

  // Products become weights.
  __device__ __forceinline__ void weigh() {
    const int lane = threadIdx.x % kWarpSize;
    const int lane_key = threadIdx.x % kGroupThreads / 32 * 16 + lane / 4;
    const int lane_row = lane % 4 * 2;
    const Step& now = block.steps[step_at().stage];
    const float2* shift = now.statistics.shift + lane % 4;
    const auto hide = [&](auto& y) { hide_pairs(y, SeenColumns(now.mask, now.key_count, lane_key, lane_row)); };
    RowPairs<kBlockM / 8> pairs;
    if constexpr (!kHasP) {
      pairs.read(now.statistics.delta + lane % 4);
      subtract_delta(x, pairs);
      if (now.unusual) hide_rows<false>(x, shift);
      if (now.edge) hide(x);
      take_p();
      round_weights<T>(weights, x);
      give_ds();
    } else if constexpr (kPlain) {
      pairs.read(shift);
      exponentiate(x, factor, pairs);
      if (now.unusual) hide_rows<true>(x, shift);
      if (now.edge) hide(x);
      give_p(x);
      round_weights<T>(weights, x);
    } else {
      float slopes[kBlockM / 8][4];  // of the score: d(score) / d(scale * product)
      for_each_element(slopes, [](float& y, int, int, int) { y = 1.0f; });
      apply_score_backward(
          x, slopes, args.attention, now.slope, now.diagonal + static_cast<float>(lane_row - lane_key)
      );
      pairs.read(shift);
      exponentiate(x, factor, pairs);
      if (now.unusual) {
        hide_rows<true>(x, shift);
        hide_rows<false>(slopes, shift);
      }
      if (now.edge) {
        hide(x);
        hide(slopes);
      }
      round_weights<T>(weights, x);
      sm90::weigh(slopes, x);
      give_p(slopes);
    }
    __syncwarp();
    block.step.release(step_at());
  }

  // The products of the step `count`, when what it is, and its rows, have come.
  __device__ __forceinline__ void begin_step() {
    block.step.wait_full(step_at());
    factor_rows().wait_full(factor_at());
    issue_products();
  }
  __device__ __forceinline__ void end_products() {
    wait_products<0>();
    pin(x);
    factor_rows().release(factor_at());
  }

  template <bool kFirst, bool kLast>
  __device__ __forceinline__ void turn() {
    // Known to the compiler as the same in all lanes, and as new in every turn: descriptors are not kept, but computed, in
    // uniform registers.
    count = __shfl_sync(kFullWarp, count, 0);
    shared = __shfl_sync(kFullWarp, shared, 0);
    if constexpr (!kFirst) issue_dq<1>(1);
    if constexpr (!kFirst && kDqFirst) {
      wait_products<0>();
      stage_dq();
    }
    weigh();
    summed_rows().wait_full(summed_at());
    issue_sums<kFirst>();
    if constexpr (!kFirst && !kDqFirst) {
      wait_products<1>();
      stage_dq();
    }
    wait_ds();
    issue_dq<0>(0);
    wait_products<1>();
    pin(sums);
    pin(weights);
    summed_rows().release(summed_at());
    ++count;
    if constexpr (kLast) {
      wait_products<0>();
      stage_dq();
    } else {
      begin_step();
      wait_products<1>();
      stage_dq();
      end_products();
    }
  }

  __device__ __forceinline__ void sum(int steps) {
    block.k.wait_full(kv);
    if constexpr (!kHasP) block.v.wait_full(kv);
    begin_step();
    end_products();
    if (steps == 1) {
      turn<true, true>();
    } else {
      turn<true, false>();
#pragma unroll 1
      for (int i = 2; i < steps; ++i) turn<false, false>();
      turn<false, true>();
    }
    block.v.release(kv);
    issue_dq<1>(1);
    wait_products<0>();
    block.k.release(kv);
    kv.advance();
    stage_dq();
  }
};

// A warp's keys, dv by one warpgroup and dk by the other, which computes those again that come out as NaN or infinite under a
// mask: `sums` of either.
template <class T, int kHeadDim, int kRow, int kGroup, int kBlocks>
__device__ __forceinline__ void store_split_keys(
    const BwdArgs& args,
    const float* delta,
    BwdBlock<kRow>& block,
    const BwdTask& task,
    const Range& own,
    float (&sums)[kBlocks][4]
) {
  constexpr bool kHasDv = kGroup == 0;
  const Attention& a = args.attention;
  const int warp = threadIdx.x % kGroupThreads / kWarpSize;
  const bool masked = masks_pairs(a);
  using Sums = float(&)[1][kBlocks][4];
  Sums all = reinterpret_cast<Sums>(sums);
  unsigned marked = 0;
  if (masked) marked = rows_where<2>(own.end - own.begin, [&](int i) { return !row_is_finite(all, i); });
  if constexpr (!kHasDv) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[n][j] *= a.scale;
    }
  }
  const Tensor& tensor = kHasDv ? args.dv : args.dk;
  store_rows<T>({tensor, task.s.k, own, task.at.head, kHasDv ? a.head_dim_v : a.head_dim}, 0, all);
  if (!masked) return;
  if constexpr (kHasDv) {
    if (threadIdx.x % kWarpSize == 0) block.marks[warp] = marked;
    __syncwarp();
    arrive_threads<2 * kGroupThreads>(kMarksGiven);
  } else {
    sync_threads<2 * kGroupThreads>(kMarksGiven);
    marked |= block.marks[warp];
#pragma unroll 1
    for (; marked != 0; marked &= marked - 1) {
      const int32_t key = own.begin + __ffs(marked) - 1;
      bwd_exact_key<T, kHeadDim>(args, delta, task.s, task.at.batch, task.at.head, key, threadIdx.x % kWarpSize);
    }
  }
}

template <class T, int kRow, bool kPlain, int kGroup>
__device__ __forceinline__ void bwd_compute_role(
    const BwdArgs& args, const float* delta, BwdBlock<kRow>& block, uint32_t shared
) {
  using Computer = BwdSplitComputer<T, kRow, kPlain, kGroup>;
  Computer computer = {.args = args, .block = block, .shared = shared};
  computer.factor = kPlain ? args.attention.scale * kLog2e : 1.0f;
  BwdTaskReader<kRow> reader = {block};
  for (;;) {
    const BwdTask& task = reader.take();
    const int steps = __shfl_sync(kFullWarp, task.steps, 0);  // known to the compiler as the same in all lanes
    if (steps < 0) break;
    if (steps > 0) {
      computer.sum(steps);
      store_split_keys<T, Computer::kHeadDim, kRow, kGroup>(
          args, delta, block, task, warp_keys(task, 0), computer.sums
      );
    } else if constexpr (kGroup == 0) {
      store_zero_keys<T>(args, task, warp_keys(task, 0));
    }
    reader.done();
  }
}

template <class T, int kRow, bool kPlain>
__device__ __forceinline__ void bwd_compute_split_tiles(
    const BwdArgs& args, const float* delta, BwdBlock<kRow>& block, uint32_t shared, int group
) {
  if (group == 0) {
    bwd_compute_role<T, kRow, kPlain, 0>(args, delta, block, shared);
  } else {
    bwd_compute_role<T, kRow, kPlain, 1>(args, delta, block, shared);
  }
}

}  // namespace cuflash::sm90
