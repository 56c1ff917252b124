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
  constexpr int kBlockM = kTile.block_m;
  const uint64_t once = cache_policy<Keep::kFirst>();
  const uint64_t again = cache_policy<Keep::kLast>();
  RingPosition<kTile.stages> q, dout;
  RingPosition<1> kv;
  RingPosition<BwdBlock<kRow>::kTasks> slot;
  const auto post = [&](const BwdTask& task) {
    block.task.wait_empty(slot);
    block.tasks[slot.stage] = task;
    arrive(block.task.full_at(slot));
    slot.advance();
  };

  const int32_t blocks_per_head = ceil_div(a.seqlen_k, kTile.block_n);
  const int64_t tiles = num_tiles(a.batch, a.num_heads_k, blocks_per_head);
  for (;;) {
    const int64_t tile = static_cast<int64_t>(atomicAdd(next_tile, 1ull));
    if (tile >= tiles) break;
    const BwdTask task = bwd_task_of<kRow>(a, key_tile(a, tile, blocks_per_head));
    if (task.own.empty()) continue;
    post(task);
    const int32_t group = group_size(a);
    for (int32_t member = 0; member < group; ++member) {
      for (int32_t n = 0; n < task.blocks; ++n) {
        const int row = static_cast<int>(task.s.q.first + int64_t{task.first_block + n} * kBlockM);
        const int head = task.at.head * group + member;
        const int entry = static_cast<int>(task.s.q.batch);
        block.q.wait_empty(q);
        arrive_expecting(block.q.full_at(q), kTile.rows_bytes());
        load_rows<kBlockM, kHeadDim>(
            shared + kTile.q_offset() + q.stage * kTile.rows_bytes(), maps.q, block.q.full_at(q), again, row, head, entry
        );
        q.advance();
        if (member == 0 && n == 0) {
          const int key = static_cast<int>(task.s.k.first + task.own.begin);
          const int key_entry = static_cast<int>(task.s.k.batch);
          block.k.wait_empty(kv);
          arrive_expecting(block.k.full_at(kv), kTile.kv_bytes());
          load_rows<kTile.block_n, kHeadDim>(
              shared + kTile.k_offset(), maps.k, block.k.full_at(kv), once, key, task.at.head, key_entry
          );
          block.v.wait_empty(kv);
          arrive_expecting(block.v.full_at(kv), kTile.kv_bytes());
          load_rows<kTile.block_n, kHeadDim>(
              shared + kTile.v_offset(), maps.v, block.v.full_at(kv), once, key, task.at.head, key_entry
          );
          kv.advance();
        }
        block.dout.wait_empty(dout);
        arrive_expecting(block.dout.full_at(dout), kTile.rows_bytes());
        load_rows<kBlockM, kHeadDim>(
            shared + kTile.dout_offset() + dout.stage * kTile.rows_bytes(),
            maps.dout,
            block.dout.full_at(dout),
            again,
            row,
            head,
            entry
        );
        dout.advance();
      }
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
      unusual = __any_sync(0xffffffffu, unusual);
      if (lane == 0) {
        step.mask = mask;
        step.edge = unusual || own_count < kTile.block_n || !mask.hides_nothing(kTile.block_n, kBlockM);
        step.slope = alibi_slope(a, task.at.batch, head);
        step.diagonal = static_cast<float>(first_row + task.s.offset - task.own.begin);
        step.dq_tile =
            DqTiles::of(a, kBlockM).first(a, task.s.q, task.at.batch, head, kBlockM) + n;
      }
      if (i == 0) {
        if (key_strangers && own_count < kTile.block_n) {
          block.k.wait_full(kv);
          clear_rows<kTile.block_n, kHeadDim>(shared + kTile.k_offset(), own_count);
          publish_writes();
        }
        kv.advance();
      }
      if (query_strangers && mask.columns < kBlockM) {
        block.q.wait_full(rows);
        block.dout.wait_full(rows);
        clear_rows<kBlockM, kHeadDim>(shared + kTile.q_offset() + rows.stage * kTile.rows_bytes(), mask.columns);
        clear_rows<kBlockM, kHeadDim>(shared + kTile.dout_offset() + rows.stage * kTile.rows_bytes(), mask.columns);
        publish_writes();
      }
      rows.advance();
      __syncwarp();
      if (lane == 0) arrive(block.step.full_at(slot));
      slot.advance();
    }
    reader.done();
  }
}

}  // namespace cuflash::sm90
