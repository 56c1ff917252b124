// SPDX-License-Identifier: MIT
// The loader: one thread that walks over the block's tiles and keeps buffers full, as far ahead as they allow, across the
// borders of tiles.
#pragma once

#include "kernels/sm90/fwd_block.cuh"
#include "kernels/sm90/load_rows.cuh"

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

template <int kRow>
__device__ __forceinline__ void load_tiles(
    const Attention& a, const FwdMaps& maps, FwdBlock<kRow>& block, uint32_t shared
) {
  constexpr FwdTile kTile = kFwdTiles[kRow];
  constexpr int kHeadDim = kTile.head_dim;
  const uint64_t once = cache_policy<Keep::kFirst>();
  const uint64_t again = cache_policy<Keep::kLast>();
  using Ring = RingBarriers<kTile.stages>;
  using Position = RingPosition<kTile.stages>;
  RingPosition<kTile.q_stages> q;
  Position k, v;
  RingPosition<FwdBlock<kRow>::kTasks> slot;
  const auto post = [&](const FwdTask& task) {
    block.task.wait_empty(slot);
    block.tasks[slot.stage] = task;
    arrive(block.task.full_at(slot));
    slot.advance();
  };

  block.schedule = Schedule::of(a, kTile.block_m, gridDim.x);
  for (int64_t turn = 0; turn * gridDim.x < block.schedule.tiles; ++turn) {
    const int64_t tile = block.schedule.tile(turn, blockIdx.x);
    if (tile >= block.schedule.tiles) continue;
    const FwdTask task = task_of(a, block.schedule.at(tile), kTile.block_m, kTile.block_n);
    if (task.rows.empty()) continue;
    post(task);
    if (task.key_blocks == 0) continue;
    block.q.wait_empty(q);
    arrive_expecting(block.q.full_at(q), kTile.q_bytes());
    load_rows<kTile.block_m, kHeadDim>(
        shared + kTile.q_offset() + q.stage * kTile.q_bytes(),
        maps.q,
        block.q.full_at(q),
        once,
        static_cast<int>(task.s.q.first + task.rows.begin),
        task.at.head,
        static_cast<int>(task.s.q.batch)
    );
    q.advance();

    const int head_k = key_head(a, task.at.head);
    const int first = static_cast<int>(task.s.k.first + task.keys.begin);
    const auto load = [&](const Ring& ring, Position& at, int offset, const CUtensorMap& map, int n) {
      ring.wait_empty(at);
      arrive_expecting(ring.full_at(at), kTile.kv_bytes());
      load_rows<kTile.block_n, kHeadDim>(
          shared + offset + at.stage * kTile.kv_bytes(),
          map,
          ring.full_at(at),
          again,
          first + n * kTile.block_n,
          head_k,
          static_cast<int>(task.s.k.batch)
      );
      at.advance();
    };
    // From the last block to the first, v a step behind k.
    for (int n = task.key_blocks; n >= 0; --n) {
      if (n > 0) load(block.k, k, kTile.k_offset(), maps.k, n - 1);
      if (n < task.key_blocks) load(block.v, v, kTile.v_offset(), maps.v, n);
    }
  }
  FwdTask end{};
  end.key_blocks = -1;
  post(end);
}

}  // namespace cuflash::sm90
