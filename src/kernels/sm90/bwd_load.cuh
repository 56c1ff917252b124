// SPDX-License-Identifier: MIT
// The loading warps: one thread that walks over the block's tiles and keeps buffers full, and a warp that hands on what
// each step is.
#pragma once

#include "kernels/sm90/bwd_block.cuh"
#include "kernels/sm90/load_rows.cuh"
#include "kernels/sm90/schedule.h"

namespace cuflash::sm90 {

// Writes a tile's description where readers take it from: the loader has few registers.
//
// Without a mask the tiles of a head, which are at work together, begin at different query rows, as they do under a causal
// one: sums of dq then go to different places, where otherwise all would wait for the same ones.
template <int kRow>
__device__ __forceinline__ void describe_task(
    const Attention& a, const KeySchedule& schedule, const TileCoord& at, BwdTask& task
) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  task.at = at;
  task.s = sequence_of(a, at.batch);
  task.own = block_rows(at.block, kTile.block_n, task.s.k.length);
  const QueryBlocks blocks = QueryBlocks::of(a, task.s, task.own, kTile.block_m);
  task.first_block = blocks.first;
  task.blocks = blocks.count;
  task.start = task.first_block;
  if (task.blocks > 0 && schedule.staggered) task.start += task.own.begin / kTile.block_m % task.blocks;
  task.steps = task.blocks * static_cast<int32_t>(schedule.group_size);
}

template <int kRow>
__device__ __forceinline__ void bwd_load_tiles(
    const Attention& a,
    const KeySchedule& schedule,
    const BwdMaps& maps,
    BwdBlock<kRow>& block,
    uint32_t shared,
    uint32_t* next_tile
) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kHeadDim = kTile.head_dim;
  constexpr int kBlockM = kTile.block_m;
  constexpr int kTasks = BwdBlock<kRow>::kTasks;
  RingPosition<1> kv;
  uint32_t tasks = 0;
  uint32_t count = 0;  // of steps
  const auto slot = [&] { return ring_position<kTasks>(tasks); };
  const auto post = [&] {
    arrive(block.task.full_at(slot()));
    ++tasks;
  };
  for (;;) {
    const uint32_t tile = atomicAdd(next_tile, 1u);
    BwdTask& task = block.tasks[tasks % kTasks];  // readers are not done before all is loaded
    block.task.wait_empty(slot());
    if (tile >= schedule.tiles) {
      task.steps = -1;
      break;
    }
    describe_task<kRow>(a, schedule, schedule.at(tile), task);
    if (task.own.empty()) continue;
    post();
    BwdWalk at = {task.start, task.at.head * static_cast<int32_t>(schedule.group_size)};
    const auto load_step = [&]<int kStages>(RingBarriers<kStages>& ring, int offset, const CUtensorMap& map) {
      const RingPosition<kStages> to = ring_position<kStages>(count);
      ring.wait_empty(to);
      arrive_expecting(ring.full_at(to), kTile.rows_bytes());
      load_rows<kBlockM, kHeadDim>(
          shared + offset + to.stage * kTile.rows_bytes(),
          map,
          ring.full_at(to),
          cache_policy<Keep::kLast>(),
          {static_cast<int>(task.s.q.first + int64_t{at.block} * kBlockM), at.head, static_cast<int>(task.s.q.batch)}
      );
    };
    const auto load_keys = [&](auto& ring, int offset, const CUtensorMap& map) {
      ring.wait_empty(kv);
      arrive_expecting(ring.full_at(kv), kTile.kv_bytes());
      load_rows<kTile.block_n, kHeadDim>(
          shared + offset,
          map,
          ring.full_at(kv),
          cache_policy<Keep::kFirst>(),
          {static_cast<int>(task.s.k.first + task.own.begin), task.at.head, static_cast<int>(task.s.k.batch)}
      );
    };
    for (int32_t i = 0; i < task.steps; ++i, ++count, at.advance(task)) {
      load_step(block.q, kTile.q_offset(), maps.q);
      if (i == 0) {
        load_keys(block.k, kTile.k_offset(), maps.k);
        load_keys(block.v, kTile.v_offset(), maps.v);
        kv.advance();
      }
      load_step(block.dout, kTile.dout_offset(), maps.dout);
    }
  }
  post();
}

// Zeros to rows [first, kRows) of a tile, by a warp.
template <int kRows, int kHeadDim>
__device__ __forceinline__ void clear_rows(uint32_t tile, int first) {
  constexpr int kChunks = kHeadDim / 8;
  for (int i = first * kChunks + threadIdx.x % kWarpSize; i < kRows * kChunks; i += kWarpSize) {
    clear_chunk(tile + Panels<kRows>::offset(i / kChunks, i % kChunks * 8));
  }
}

template <int kRow>
__device__ __forceinline__ void bwd_describe_steps(
    const BwdArgs& args, const KeySchedule& schedule, const float* delta, BwdBlock<kRow>& block, uint32_t shared
) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kHeadDim = kTile.head_dim;
  constexpr int kBlockM = kTile.block_m;
  const Attention& a = args.attention;
  const int lane = threadIdx.x % kWarpSize;
  const bool query_strangers = a.cu_seqlens_q != nullptr || a.seqused_q != nullptr;  // behind the rows in use
  const bool key_strangers = a.cu_seqlens_k != nullptr || a.seqused_k != nullptr;
  BwdTaskReader<kRow> reader = {block};
  RingPosition<1> kv;
  uint32_t count = 0;  // of steps
  for (;;) {
    const BwdTask& task = reader.take();
    if (task.steps < 0) break;
    const int own_count = task.own.end - task.own.begin;
    BwdWalk at = {task.start, task.at.head * static_cast<int32_t>(schedule.group_size)};
    for (int32_t i = 0; i < task.steps; ++i, ++count, at.advance(task)) {
      const RingPosition<kTile.step_stages> slot = ring_position<kTile.step_stages>(count);
      const int32_t first_row = at.block * kBlockM;
      const TileMask mask = query_mask(a, task.s, task.own.begin, first_row);
      block.step.wait_empty(slot);
      typename BwdBlock<kRow>::Step& step = block.steps[slot.stage];

      const int64_t offset = lse_offset(a, task.s.q, first_row, at.head);
      float* shift = &step.statistics.shift[0].x;
      float* negative_delta = &step.statistics.delta[0].x;
      bool unusual = false;
#pragma unroll 2  // the warp has few registers
      for (int r = lane; r < kBlockM; r += kWarpSize) {
        const bool exists = r < mask.columns;
        const float lse = exists ? args.lse[offset + r] : 0.0f;
        shift[r] = -kLog2e * lse;
        negative_delta[r] = exists ? -delta[offset + r] : 0.0f;
        unusual |= !(fabsf(lse) <= kUsualLse);
      }
      unusual = __any_sync(kFullWarp, unusual);
      if (lane == 0) {
        step.mask = mask;
        step.key_count = own_count;
        step.unusual = unusual;
        step.edge = own_count < kTile.block_n || !mask.hides_nothing(kTile.block_n, kBlockM);
        step.slope = alibi_slope(a, task.at.batch, at.head);
        step.diagonal = static_cast<float>(first_row + task.s.offset - task.own.begin);
        if (schedule.descending) {
          step.dq_turn = last_tile_of_keys(a, task.s, at.block, kBlockM, kTile.block_n) - task.at.block;
        }
        step.dq_tile = DqTiles::of(a, kBlockM).first(a, task.s.q, task.at.batch, at.head, kBlockM) + at.block;
      }
      // Of these no use may be left out: a barrier that is two phases behind looks like one that is done.
      if (key_strangers && i == 0) {
        block.k.wait_full(kv);
        kv.advance();
        clear_rows<kTile.block_n, kHeadDim>(shared + kTile.k_offset(), own_count);
        publish_writes();
      }
      // Rarely: a wait for copies here keeps the consumers from the product that needs one of them only. Most uses of the
      // buffers are not waited for; when the step that dout's had before is done, the phases of both are known all the same.
      if (query_strangers && mask.columns < kBlockM) {
        static_assert(kTile.dout_stages <= kTile.q_stages && kTile.dout_stages <= kTile.step_stages);
        const RingPosition<kTile.q_stages> q = ring_position<kTile.q_stages>(count);
        const RingPosition<kTile.dout_stages> dout = ring_position<kTile.dout_stages>(count);
        block.step.wait_empty(ring_position<kTile.step_stages>(count + kTile.step_stages - kTile.dout_stages));
        block.q.wait_full(q);
        block.dout.wait_full(dout);
        clear_rows<kBlockM, kHeadDim>(shared + kTile.q_offset() + q.stage * kTile.rows_bytes(), mask.columns);
        clear_rows<kBlockM, kHeadDim>(shared + kTile.dout_offset() + dout.stage * kTile.rows_bytes(), mask.columns);
        publish_writes();
      }
      arrive(block.step.full_at(slot));  // each lane, for what it has written
    }
    reader.done();
  }
}

}  // namespace cuflash::sm90
