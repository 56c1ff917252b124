// SPDX-License-Identifier: MIT
// The end of a tile: o is normalised and rounded, staged in shared memory and stored by a tensor copy, which goes on while
// the warpgroup works on its next tile. Warpgroups of which rows are missing, or to be computed again, store from registers.
#pragma once

#include "kernels/common/exact_rows.cuh"
#include "kernels/common/fragment_finish.cuh"
#include "kernels/common/fragment_store.cuh"
#include "kernels/common/warp.h"
#include "kernels/sm90/fwd_state.cuh"

namespace cuflash::sm90 {

// Rows [first, first + count) of a task, as far as they exist.
__device__ __forceinline__ Range rows_of_task(const FwdTask& task, int first, int count) {
  const int32_t all = task.rows.end - task.rows.begin;
  return {task.rows.begin + min(first, all), task.rows.begin + min(first + count, all)};
}

// Rows that see nothing: o = 0, lse = -inf.
template <class T>
__device__ __noinline__ void store_unseeing_rows(const FwdArgs& args, const FwdTask& task, int first_row) {
  const Attention& a = args.attention;
  const int lane = threadIdx.x % kWarpSize;
  const Range own = rows_of_task(task, first_row, 16);
  for (int32_t row = own.begin; row < own.end; ++row) {
    T* to = mutable_row_pointer<T>(args.o, task.s.q, row, task.at.head);
    for (int d = lane; d < a.head_dim_v; d += kWarpSize) to[d] = from_float<T>(0.0f);
    if (args.lse != nullptr && lane == 0)
      args.lse[lse_offset(a, task.s.q, row, task.at.head)] = kNegativeInfinity<float>;
  }
}

// Rounded, a warp's rows to a stage of 64 rows, from column kFirst on: blocks of 8 x 8, four at a time.
template <class T, int kFirst, int kColumns, int kNTiles>
__device__ __forceinline__ void stage_rows(uint32_t stage, const float (&o)[1][kNTiles][4]) {
  const int lane = threadIdx.x % kWarpSize;
  const int row = threadIdx.x % kGroupThreads / kWarpSize * 16 + lane % 16;
  const uint32_t to = stage + Panels<kGroupRows>::offset(row, lane / 16 * 8);
#pragma unroll
  for (int n = 0; n < kColumns / 8; n += 2) {
    const float(&x)[4] = o[0][kFirst / 8 + n];
    const float(&y)[4] = o[0][kFirst / 8 + n + 1];
    const uint32_t blocks[4] = {pack<T>(x[0], x[1]), pack<T>(x[2], x[3]), pack<T>(y[0], y[1]), pack<T>(y[2], y[3])};
    store_blocks((to ^ (n % 8 * 16)) + n / 8 * Panels<kGroupRows>::kBytes, blocks);
  }
}

// o of 64 rows by way of the warpgroup's stage, kTile.o_columns at a time. It is free at the first call.
template <class T, int kRow, int kFirst = 0, int kNTiles>
__device__ __forceinline__ void store_staged(
    const CUtensorMap& map,
    const FwdTask& task,
    uint32_t stage,
    int group,
    int head_dim,
    const float (&o)[1][kNTiles][4]
) {
  constexpr int kColumns = kFwdTiles[kRow].o_columns;
  const bool elected = threadIdx.x % kGroupThreads == 0;
  if constexpr (kFirst > 0) {
    if (elected) wait_stores_read();
    sync_threads<kGroupThreads>(kGroup + group);
  }
  stage_rows<T, kFirst, kColumns>(stage, o);
  publish_writes();
  sync_threads<kGroupThreads>(kGroup + group);
  if (elected) {
    const int row = static_cast<int>(task.s.q.first + task.rows.begin) + group * kGroupRows;
#pragma unroll
    for (int panel = 0; panel < kColumns / kPanel; ++panel) {
      const int column = kFirst + panel * kPanel;
      if (column >= head_dim) break;
      store_box(
          map, stage + panel * Panels<kGroupRows>::kBytes, column, row, task.at.head, static_cast<int>(task.s.q.batch)
      );
    }
    commit_stores();
  }
  if constexpr (kFirst + kColumns < 8 * kNTiles) {
    if (kFirst + kColumns < head_dim) store_staged<T, kRow, kFirst + kColumns>(map, task, stage, group, head_dim, o);
  }
}

// `inverse`: what o is to be multiplied by. `wrong`: that and lse are not to be used, all rows are to be computed again.
template <class T, int kRow, int kNTiles>
__device__ __forceinline__ void store_tile(
    const FwdArgs& args,
    const CUtensorMap& map,
    const FwdTask& task,
    const Range& own,
    uint32_t shared,
    int group,
    const RowStates<1>& state,
    const float (&inverse)[2],
    float (&o)[1][kNTiles][4],
    bool wrong
) {
  constexpr FwdTile kTile = kFwdTiles[kRow];
  const Attention& a = args.attention;
  const int lane = threadIdx.x % kWarpSize;
  normalise(o, inverse);
  unsigned marked = masks_pairs(a) ? rows_to_redo(o, state, own) : 0;
  if (wrong) marked = (1u << (own.end - own.begin)) - 1;

  if constexpr (kTile.o_columns > 0) {
    // A box that reaches past the last row is clipped, but only at the end of the tensor's entry.
    const Range rows = rows_of_task(task, group * kGroupRows, kGroupRows);
    const bool clipped = a.cu_seqlens_q == nullptr && a.seqused_q == nullptr && !rows.empty();
    const bool whole = rows.end - rows.begin == kGroupRows || clipped;
    if (threadIdx.x % kGroupThreads == 0) wait_stores_read();
    if (!sync_any<kGroupThreads>(kGroup + group, !whole || marked != 0)) {
      store_staged<T, kRow>(map, task, shared + kTile.o_offset() + group * kTile.o_bytes(), group, a.head_dim_v, o);
      return;
    }
  }
  store_rows<T>({args.o, task.s.q, own, task.at.head, a.head_dim_v}, 0, o);
  __syncwarp();  // rows are written twice, by different lanes
#pragma unroll 1
  for (; marked != 0; marked &= marked - 1) {
    fwd_exact_row<T, kTile.head_dim>(args, task.s, task.at, own.begin + __ffs(marked) - 1, lane);
  }
}

}  // namespace cuflash::sm90
