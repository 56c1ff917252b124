// SPDX-License-Identifier: MIT
// What leaves a block of the backward pass: sums of dq, step by step, and at the end of a tile dk and dv.
#pragma once

#include "kernels/common/exact_rows.cuh"
#include "kernels/common/fragment_store.cuh"
#include "kernels/sm90/bwd_block.cuh"
#include "kernels/sm90/schedule.h"

namespace cuflash::sm90 {

// Whether it is known that there are sums of dq to add to. `turn`: how many tiles of keys have to come before, if the order
// counts; then this waits for them.
__device__ __forceinline__ bool dq_is_there(const uint32_t* counter, DqSums sums, uint32_t turn) {
  if (sums == DqSums::kFirstPuts) return read_count(counter) >= kDqPut;
  if (sums == DqSums::kInOrder) wait_count(counter, turn);
  return sums == DqSums::kCleared || turn > 0;
}

// Whether this warp's part is the first one; if not, that of another block is there. Blocks wait for the first one's: a warp
// asks with its part at hand, which it then stores whatever others wait for. Otherwise two blocks, of each the other's part
// the first one somewhere, could wait for each other.
__device__ __forceinline__ bool is_first_dq(uint32_t* counter) {
  const uint32_t before = take_count(counter);
  if (before > 0 && before < kDqPut) wait_count(counter, kDqPut);
  return before == 0;
}

// A warp that brings a warpgroup's part of dq to the sums in global memory, in pieces, since several are faster than one.
template <int kRow>
__device__ __forceinline__ void bwd_add_dq(
    BwdBlock<kRow>& block, float* dq_sums, uint32_t* dq_counters, DqSums sums, uint32_t shared, int group
) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kPieces = 4;
  constexpr int kPieceBytes = kTile.dq_bytes() / kPieces;
  const int lane = threadIdx.x % kWarpSize;
  const uint32_t from = shared + kTile.dq_offset() + group * kTile.dq_bytes() + lane * kPieceBytes;
  BwdTaskReader<kRow> reader = {block};
  RingPosition<kTile.step_stages> slot;
  arrive_threads<kGroupThreads + 32>(kDqTaken + group);
  for (;;) {
    const BwdTask& task = reader.take();
    const int32_t steps = task.steps;
    if (steps < 0) break;
    for (int32_t i = 0; i < steps; ++i) {
      block.step.wait_full(slot);
      const int64_t tile = block.steps[slot.stage].dq_tile;
      const uint32_t turn = block.steps[slot.stage].dq_turn;
      __syncwarp();
      block.step.release(slot);
      slot.advance();
      uint32_t* counter = dq_counters + tile * kTile.kGroups + group;
      bool puts = !dq_is_there(counter, sums, turn);
      float* to = dq_sums + tile * kTile.dq_floats() + (group * kTile.dq_parts() * kPieces + lane) * (kPieceBytes / 4);
#pragma unroll
      for (int part = 0; part < kTile.dq_parts(); ++part, to += kTile.dq_bytes() / 4) {
        sync_threads<kGroupThreads + 32>(kDqStaged + group);
        if (part == 0 && puts && sums == DqSums::kFirstPuts) puts = is_first_dq(counter);
        if (lane < kPieces) {
          if (puts) {
            put_floats(to, from, kPieceBytes);
          } else {
            add_floats(to, from, kPieceBytes);
          }
          commit_stores();
          wait_stores_read();
        }
        __syncwarp();
        arrive_threads<kGroupThreads + 32>(kDqTaken + group);
      }
      if (puts || sums == DqSums::kInOrder) {
        wait_stores();
        add_count(counter, sums == DqSums::kInOrder ? 1 : kDqPut);
      }
    }
    reader.done();
  }
}

// Of a task, those of this warp.
__device__ __forceinline__ Range warp_keys(const BwdTask& task, int group) {
  const int count = task.own.end - task.own.begin;
  const int first = min(group * kGroupRows + static_cast<int>(threadIdx.x) % kGroupThreads / 32 * 16, count);
  return {task.own.begin + first, task.own.begin + min(first + 16, count)};
}

// Keys that no row sees.
template <class T>
__device__ __forceinline__ void store_zero_keys(const BwdArgs& args, const BwdTask& task, const Range& own) {
  const Attention& a = args.attention;
  const int lane = threadIdx.x % kWarpSize;
  for (int32_t key = own.begin; key < own.end; ++key) {
    T* dk = mutable_row_pointer<T>(args.dk, task.s.k, key, task.at.head);
    T* dv = mutable_row_pointer<T>(args.dv, task.s.k, key, task.at.head);
    for (int d = lane; d < a.head_dim; d += 32) dk[d] = from_float<T>(0.0f);
    for (int d = lane; d < a.head_dim_v; d += 32) dv[d] = from_float<T>(0.0f);
  }
}

// A warp's keys. Those that come out as NaN or infinite under a mask are computed again.
template <class T, int kHeadDim, int kBlocks>
__device__ __forceinline__ void store_keys(
    const BwdArgs& args,
    const float* delta,
    const BwdTask& task,
    const Range& own,
    float (&dk)[kBlocks][4],
    float (&dv)[kBlocks][4]
) {
  const Attention& a = args.attention;
  using Sums = float(&)[1][kBlocks][4];
  Sums dk_sums = reinterpret_cast<Sums>(dk);
  Sums dv_sums = reinterpret_cast<Sums>(dv);
  unsigned marked = 0;
  if (masks_pairs(a)) {
    marked = rows_where<2>(own.end - own.begin, [&](int i) {
      return !row_is_finite(dk_sums, i) || !row_is_finite(dv_sums, i);
    });
  }
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
    for (int j = 0; j < 4; ++j) dk[n][j] *= a.scale;
  }
  store_rows<T>({args.dv, task.s.k, own, task.at.head, a.head_dim_v}, 0, dv_sums);
  store_rows<T>({args.dk, task.s.k, own, task.at.head, a.head_dim}, 0, dk_sums);
  __syncwarp();  // rows are written twice, by different lanes
#pragma unroll 1
  for (; marked != 0; marked &= marked - 1) {
    const int32_t key = own.begin + __ffs(marked) - 1;
    bwd_exact_key<T, kHeadDim>(args, delta, task.s, task.at.batch, task.at.head, key, threadIdx.x % kWarpSize);
  }
}

}  // namespace cuflash::sm90
