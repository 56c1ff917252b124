// SPDX-License-Identifier: MIT
// The loader: one thread that walks over the block's tiles and keeps buffers full, as far ahead as they allow, across the
// borders of tiles.
#pragma once

#include "kernels/sm90/fwd_state.cuh"
#include "kernels/sm90/load_rows.cuh"
#include "kernels/sm90/schedule.h"

namespace cuflash::sm90 {

__device__ __forceinline__ FwdTask task_of(const Attention& a, const TileCoord& at, int block_m, int block_n) {
  FwdTask task;
  task.at = at;
  task.s = sequence_of(a, at.batch);
  task.rows = block_rows(at.block, block_m, task.s.q.length);
  task.keys = visible_keys_of_rows(a, task.s, task.rows.begin, task.rows.end);
  task.key_blocks = ceil_div(task.keys.end - task.keys.begin, block_n);
  return task;
}

__device__ __forceinline__ BoxRows query_rows(const FwdTask& task) {
  return {static_cast<int>(task.s.q.first + task.rows.begin), task.at.head, static_cast<int>(task.s.q.batch)};
}

// The first of the task's keys. Asked for once a task: a division between the wait for a buffer and its copy would be what
// everybody waits for.
__device__ __forceinline__ BoxRows key_rows(const Attention& a, const FwdTask& task) {
  return {
      static_cast<int>(task.s.k.first + task.keys.begin), key_head(a, task.at.head), static_cast<int>(task.s.k.batch)};
}

// By the whole block.
__device__ __forceinline__ void sort_entries(const Attention& a, int block_m, SortedEntries& sorted) {
  const uint32_t entry = threadIdx.x;
  const uint32_t count = a.batch;
  const SortedEntries::Size size = entry < count ? SortedEntries::size_of(a, entry, block_m) : SortedEntries::Size{};
  if (entry < count) sorted.sizes[entry] = size;
  __syncthreads();
  const uint32_t rank = entry < count ? sorted.rank_of(entry, count) : 0;
  __syncthreads();
  if (entry < count) sorted.entries[rank] = {entry, size.row_blocks};
  __syncthreads();
}

template <int kRow, bool kByEntry>
__device__ __forceinline__ void load_tiles(
    const Attention& a, const Schedule& schedule, const FwdMaps& maps, FwdState<kRow>& block, uint32_t shared
) {
  constexpr FwdTile kTile = kFwdTiles[kRow];
  constexpr int kHeadDim = kTile.head_dim;
  const uint64_t once = cache_policy<Keep::kFirst>();
  const uint64_t again = cache_policy<Keep::kLast>();
  RingPosition<1> q;
  RingPosition<kTile.stages> k, v;
  RingPosition<FwdState<kRow>::kTasks> slot;
  const auto post = [&](const FwdTask& task) {
    block.task.wait_empty(slot);
    block.tasks[slot.stage] = task;
    arrive(block.task.full_at(slot));
    slot.advance();
  };

  // What a copy needs is at hand before the wait for its buffer.
  const auto load = [&](const auto& ring, auto& at, int offset, const CUtensorMap& map, BoxRows rows, int n) {
    rows.row += n * kTile.block_n;
    ring.wait_empty(at);
    arrive_expecting(ring.full_at(at), kTile.kv_bytes());
    const uint32_t to = shared + offset + at.stage * kTile.kv_bytes();
    load_rows<kTile.block_n, kHeadDim>(to, map, ring.full_at(at), again, rows);
    at.advance();
  };
  const auto load_tile = [&](const FwdTask& task) {
    post(task);
    if (task.key_blocks == 0) return;
    const BoxRows queries = query_rows(task);
    const BoxRows keys = key_rows(a, task);
    block.q.wait_empty(q);
    arrive_expecting(block.q.full_at(q), kTile.q_bytes());
    load_rows<kTile.block_m, kHeadDim>(shared + kTile.q_offset(), maps.q, block.q.full_at(q), once, queries);
    q.advance();
    // From the last block to the first, v a step behind k.
    for (int n = task.key_blocks; n >= 0; --n) {
      if (n > 0) load(block.k, k, kTile.k_offset(), maps.k, keys, n - 1);
      if (n < task.key_blocks) load(block.v, v, kTile.v_offset(), maps.v, keys, n);
    }
  };

  TileWalk<kByEntry> walk(schedule, block.entries, a.batch);
  for (int64_t turn = 0; turn * schedule.blocks < walk.places; ++turn) {
    const int64_t place = schedule.place(turn, blockIdx.x);
    const int tiles = place < walk.places ? walk.tiles_at(place) : 0;
#pragma unroll 1
    for (int number = 0; number < tiles; ++number) {
      const FwdTask task = task_of(a, walk.at(place, number), kTile.block_m, kTile.block_n);
      if (!task.rows.empty()) load_tile(task);
    }
  }
  FwdTask end{};
  end.key_blocks = -1;
  post(end);
}

}  // namespace cuflash::sm90
