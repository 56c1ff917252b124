// SPDX-License-Identifier: MIT
// The loading warps: one thread that walks over the block's tiles and keeps buffers full, and a warp that hands on what
// each step is.
#pragma once

#include "kernels/sm90/bwd_block.cuh"
#include "kernels/sm90/load_rows.cuh"

namespace cuflash::sm90 {

template <int kRow>
__device__ __forceinline__ BwdTask bwd_task_of(const Attention& a, const TileCoord& at) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  BwdTask task;
  task.at = at;
  task.s = sequence_of(a, at.batch);
  task.own = block_rows(at.block, kTile.block_n, task.s.k.length);
  const Range rows = visible_rows_of_keys(a, task.s, task.own.begin, task.own.end);
  task.first_block = rows.begin / kTile.block_m;
  task.blocks = rows.empty() || task.own.empty() ? 0 : ceil_div(rows.end, kTile.block_m) - task.first_block;
  task.steps = task.blocks * group_size(a);
  return task;
}

// Tiles are taken in order, by whichever block is free. With a mask they differ in length: the longest of a few heads come
// first, whose rows stay in the L2 cache.
__device__ __forceinline__ TileCoord key_tile(const Attention& a, int64_t tile, int32_t blocks_per_head) {
  return masks_pairs(a) ? tile_coord_in_groups(tile, a.batch, a.num_heads_k, blocks_per_head)
                        : tile_coord(tile, a.num_heads_k, blocks_per_head);
}

template <int kRow>
__device__ __forceinline__ void bwd_load_tiles(
    const Attention& a, const BwdMaps& maps, BwdBlock<kRow>& block, uint32_t shared, unsigned long long* next_tile
) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kHeadDim = kTile.head_dim;
  const uint64_t once = cache_policy<Keep::kFirst>();
  const uint64_t again = cache_policy<Keep::kLast>();
  RingPosition<1> kv;
  RingPosition<BwdBlock<kRow>::kTasks> slot;
  const auto post = [&](const BwdTask& task) -> const BwdTask& {
    const int stage = slot.stage;
    block.task.wait_empty(slot);
    block.tasks[stage] = task;
    arrive(block.task.full_at(slot));
    slot.advance();
    return block.tasks[stage];
  };

  block.blocks_per_head = ceil_div(a.seqlen_k, kTile.block_n);
  block.tiles = num_tiles(a.batch, a.num_heads_k, block.blocks_per_head);
  uint32_t count = 0;  // of steps
  for (;;) {
    const int64_t tile = static_cast<int64_t>(atomicAdd(next_tile, 1ull));
    if (tile >= block.tiles) break;
    const BwdTask new_task = bwd_task_of<kRow>(a, key_tile(a, tile, block.blocks_per_head));
    if (new_task.own.empty()) continue;
    const BwdTask& task = post(new_task);  // readers are not done before all is loaded
    const auto load_step = [&](auto& ring, int offset, const CUtensorMap& map, int32_t i) {
      const int32_t member = i / task.blocks;
      const RingPosition<kTile.stages> at = ring_position<kTile.stages>(count);
      ring.wait_empty(at);
      arrive_expecting(ring.full_at(at), kTile.rows_bytes());
      load_rows<kTile.block_m, kHeadDim>(
          shared + offset + at.stage * kTile.rows_bytes(),
          map,
          ring.full_at(at),
          again,
          {static_cast<int>(task.s.q.first + int64_t{task.first_block + i - member * task.blocks} * kTile.block_m),
           task.at.head * group_size(a) + member,
           static_cast<int>(task.s.q.batch)}
      );
    };
    const auto load_keys = [&](auto& ring, int offset, const CUtensorMap& map) {
      ring.wait_empty(kv);
      arrive_expecting(ring.full_at(kv), kTile.kv_bytes());
      load_rows<kTile.block_n, kHeadDim>(
          shared + offset,
          map,
          ring.full_at(kv),
          once,
          {static_cast<int>(task.s.k.first + task.own.begin), task.at.head, static_cast<int>(task.s.k.batch)}
      );
    };
    for (int32_t i = 0; i < task.steps; ++i, ++count) {
      load_step(block.q, kTile.q_offset(), maps.q, i);
      if (i == 0) {
        load_keys(block.k, kTile.k_offset(), maps.k);
        load_keys(block.v, kTile.v_offset(), maps.v);
        kv.advance();
      }
      load_step(block.dout, kTile.dout_offset(), maps.dout, i);
    }
  }
  BwdTask end{};
  end.steps = -1;
  post(end);
}

// Zeros to rows [first, kRows) of a tile, by a warp.
template <int kRows, int kHeadDim>
__device__ __forceinline__ void clear_rows(uint32_t tile, int first) {
  constexpr int kChunks = kHeadDim / 8;
  for (int i = first * kChunks + threadIdx.x % 32; i < kRows * kChunks; i += 32) {
    clear_chunk(tile + Panels<kRows>::offset(i / kChunks, i % kChunks * 8));
  }
}

template <int kRow>
__device__ __forceinline__ void bwd_describe_steps(
    const BwdArgs& args, const float* delta, BwdBlock<kRow>& block, uint32_t shared
) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kHeadDim = kTile.head_dim;
  constexpr int kBlockM = kTile.block_m;
  const Attention& a = args.attention;
  const int lane = threadIdx.x % 32;
  const bool query_strangers = a.cu_seqlens_q != nullptr || a.seqused_q != nullptr;  // behind the rows in use
  const bool key_strangers = a.cu_seqlens_k != nullptr || a.seqused_k != nullptr;
  BwdTaskReader<kRow> reader = {block};
  RingPosition<kTile.stages> rows;
  RingPosition<kTile.step_stages> slot;
  RingPosition<1> kv;
  for (;;) {
    const BwdTask& task = reader.take();
    if (task.steps < 0) break;
    const int own_count = task.own.end - task.own.begin;
    for (int32_t i = 0; i < task.steps; ++i) {
      const int32_t member = i / task.blocks;
      const int32_t head = task.at.head * group_size(a) + member;
      const int32_t n = task.first_block + i - member * task.blocks;
      const int32_t first_row = n * kBlockM;
      const TileMask mask = query_mask(a, task.s, task.own.begin, first_row);
      block.step.wait_empty(slot);
      typename BwdBlock<kRow>::Step& step = block.steps[slot.stage];

      const int64_t offset = lse_offset(a, task.s.q, first_row, head);
      float* shift = &step.statistics.shift[0].x;
      float* negative_delta = &step.statistics.delta[0].x;
      bool unusual = false;
#pragma unroll
      for (int r = lane; r < kBlockM; r += 32) {
        const bool exists = r < mask.columns;
        const float lse = exists ? args.lse[offset + r] : 0.0f;
        shift[r] = -kLog2e * lse;
        negative_delta[r] = exists ? -delta[offset + r] : 0.0f;
        unusual |= !(fabsf(lse) <= kUsualLse);
      }
      unusual = __any_sync(kFullWarp, unusual);
      if (lane == 0) {
        step.mask = mask;
        step.unusual = unusual;
        step.edge = own_count < kTile.block_n || !mask.hides_nothing(kTile.block_n, kBlockM);
        step.slope = alibi_slope(a, task.at.batch, head);
        step.diagonal = static_cast<float>(first_row + task.s.offset - task.own.begin);
        step.dq_tile = DqTiles::of(a, kBlockM).first(a, task.s.q, task.at.batch, head, kBlockM) + n;
      }
      // No use may be left out: a barrier that is two phases behind looks like one that is done.
      if (key_strangers && i == 0) {
        block.k.wait_full(kv);
        kv.advance();
        clear_rows<kTile.block_n, kHeadDim>(shared + kTile.k_offset(), own_count);
        publish_writes();
      }
      if (query_strangers) {
        block.q.wait_full(rows);
        block.dout.wait_full(rows);
        clear_rows<kBlockM, kHeadDim>(shared + kTile.q_offset() + rows.stage * kTile.rows_bytes(), mask.columns);
        clear_rows<kBlockM, kHeadDim>(shared + kTile.dout_offset() + rows.stage * kTile.rows_bytes(), mask.columns);
        publish_writes();
        rows.advance();
      }
      __syncwarp();
      if (lane == 0) arrive(block.step.full_at(slot));
      slot.advance();
    }
    reader.done();
  }
}

}  // namespace cuflash::sm90
