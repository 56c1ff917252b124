// SPDX-License-Identifier: MIT
// What comes before and behind the main kernel of the backward pass, tile by tile of dq: delta, and counters and perhaps sums
// that are clear; and dq = scale * sums.
#pragma once

#include "kernels/common/bwd_delta.cuh"
#include "kernels/common/exact_rows.cuh"
#include "kernels/common/numeric_traits.cuh"
#include "kernels/sm90/dq_tiles.h"
#include "kernels/sm90/launchers.h"
#include "kernels/sm90/tiles.h"

namespace cuflash::sm90 {

// Calls f(at, sequence, rows, tile) for the tiles of dq that hold rows.
template <int kBlockM, class F>
__device__ __forceinline__ void for_each_dq_tile(const Attention& a, F&& f) {
  const DqTiles dq_tiles = DqTiles::of(a, kBlockM);
  const int64_t tiles = num_tiles(a.batch, a.num_heads, ceil_div(a.seqlen_q, kBlockM));
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TileCoord at = tile_coord_by_block(tile, a.batch, a.num_heads);
    const Sequence s = sequence_of(a, at.batch);
    const Range rows = block_rows(at.block, kBlockM, s.q.length);
    if (!rows.empty()) f(at, s, rows, dq_tiles.first(a, s.q, at.batch, at.head, kBlockM) + at.block);
  }
}

// Three blocks a multiprocessor: for four, ptxas has registers for three of a thread's eight loads at a time.
template <class T, int kRow>
__global__ void __launch_bounds__(kRowThreads, 3)
    bwd_prepare_kernel(const BwdArgs args, const BwdWorkspace workspace, const bool clears) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr RowGroups kGroups = {kRowThreads * kRowsAtOnce / kTile.block_m, true};
  if (blockIdx.x == 0 && threadIdx.x == 0) *workspace.next_tile = 0;
  for_each_dq_tile<kTile.block_m>(args.attention, [&](const auto& at, const auto& s, const Range& rows, int64_t tile) {
    store_delta<T>(args, kGroups, s, at.head, rows, workspace.delta);
    if (clears) clear_floats<kVectorSize<float>>(workspace.dq_sums + tile * kTile.dq_floats(), kTile.dq_floats());
    if (threadIdx.x < kTile.kGroups) {
      workspace.dq_counters[tile * kTile.kGroups + threadIdx.x] = clears ? kDqPut : 0;
    }
  });
}

// A block's tile on its way to rows: rounded, and which rows hold something that is not finite.
template <class T, int kRow>
struct DqRows {
  static constexpr BwdTile kTile = kBwdTiles[kRow];
  static constexpr int kPitch = kTile.head_dim + 8;  // a row begins four banks behind the last

  alignas(16) T rows[kTile.block_m][kPitch];
  bool not_finite[kTile.block_m];
};

// By all threads of the block; no sums are zeros. Whether this one has met something that is not finite.
template <class T, int kRow>
__device__ __forceinline__ bool stage_dq(
    DqRows<T, kRow>& staged, const float* sums, bool has_sums, float scale, int head_dim
) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kQuads = kTile.dq_floats() / 4;
  constexpr int kAtOnce = 8;  // of a thread, on their way
  static_assert(kQuads % (kAtOnce * kRowThreads) == 0);
  bool met = false;
#pragma unroll 1
  for (int first = threadIdx.x; first < kQuads; first += kAtOnce * kRowThreads) {
    float4 quads[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      quads[j] = has_sums ? reinterpret_cast<const float4*>(sums)[first + j * kRowThreads] : float4{};
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const DqPlace place = dq_place(kTile.block_m, first + j * kRowThreads);
      const auto put = [&](int row, float left, float right) {
        *reinterpret_cast<uint32_t*>(&staged.rows[row][place.column]) = pack<T>(left * scale, right * scale);
        const bool finite = (left - left) + (right - right) == 0.0f;
        if (finite || place.column >= head_dim) return;
        staged.not_finite[row] = true;
        met = true;
      };
      put(place.row, quads[j].x, quads[j].y);
      put(place.row + 8, quads[j].z, quads[j].w);
    }
  }
  return met;
}

template <class T, int kRow>
__global__ void __launch_bounds__(kRowThreads) bwd_finish_kernel(const BwdArgs args, const BwdWorkspace workspace) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kBlockM = kTile.block_m;
  constexpr int kVectors = kTile.head_dim / kVectorSize<T>;  // of a row
  extern __shared__ __align__(1024) unsigned char shared[];
  DqRows<T, kRow>& staged = *reinterpret_cast<DqRows<T, kRow>*>(shared);
  const Attention& a = args.attention;
  for_each_dq_tile<kBlockM>(a, [&](const TileCoord& at, const Sequence& s, const Range& rows, int64_t tile) {
    __syncthreads();  // the tile before is done
    if (threadIdx.x < kBlockM) staged.not_finite[threadIdx.x] = false;
    __syncthreads();
    const float* sums = workspace.dq_sums + tile * kTile.dq_floats();
    const bool has_sums = workspace.dq_counters[tile * kTile.kGroups] != 0;  // else no key sees these rows
    const bool not_finite = __syncthreads_or(stage_dq<T, kRow>(staged, sums, has_sums, a.scale, a.head_dim));
    const int count = rows.end - rows.begin;
    for (int i = threadIdx.x; i < count * kVectors; i += kRowThreads) {
      const int row = i / kVectors;
      const int column = i % kVectors * kVectorSize<T>;
      if (column >= a.head_dim) continue;
      T* to = mutable_row_pointer<T>(args.dq, s.q, rows.begin + row, at.head) + column;
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&staged.rows[row][column]);
    }
    if (!not_finite || !masks_pairs(a)) return;
    __syncthreads();  // rows are written twice, by different threads
#pragma unroll 1
    for (int row = threadIdx.x / kWarpSize; row < count; row += kRowThreads / kWarpSize) {
      if (!staged.not_finite[row]) continue;
      bwd_exact_query<T, kTile.head_dim>(
          args, workspace.delta, s, at.batch, at.head, rows.begin + row, threadIdx.x % kWarpSize
      );
    }
  });
}

}  // namespace cuflash::sm90
