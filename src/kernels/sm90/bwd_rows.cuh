// SPDX-License-Identifier: MIT
// What comes before and behind the main kernel of the backward pass, tile by tile of dq: delta and clear sums, and
// dq = scale * sums.
#pragma once

#include "kernels/common/alignment.h"
#include "kernels/common/bwd_delta.cuh"
#include "kernels/common/exact_rows.cuh"
#include "kernels/common/numeric_traits.cuh"
#include "kernels/sm90/bwd_block.cuh"

namespace cuflash::sm90 {

inline constexpr int kBwdRowThreads = 256;

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

template <class T, int kRow>
__global__ void __launch_bounds__(kBwdRowThreads) bwd_prepare_kernel(
    const BwdArgs args, float* delta, float* dq_sums, unsigned long long* next_tile
) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kBlockM = kTile.block_m;
  constexpr int kLanes = kTile.head_dim / kVectorSize<T>;  // that share a row
  constexpr int kRowsAtOnce = kBwdRowThreads / kLanes;
  const Attention& a = args.attention;
  if (blockIdx.x == 0 && threadIdx.x == 0) *next_tile = 0;
  const int lane = threadIdx.x % kLanes;
  for_each_dq_tile<kBlockM>(a, [&](const TileCoord& at, const Sequence& s, const Range& rows, int64_t tile) {
    float4* sums = reinterpret_cast<float4*>(dq_sums + tile * kTile.dq_floats());
#pragma unroll
    for (int i = 0; i < kTile.dq_floats() / 4 / kBwdRowThreads; ++i) {
      sums[i * kBwdRowThreads + threadIdx.x] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    const int64_t first = lse_offset(a, s.q, rows.begin, at.head);
#pragma unroll
    for (int i = 0; i < kBlockM / kRowsAtOnce; ++i) {
      const int row = i * kRowsAtOnce + threadIdx.x / kLanes;
      const bool exists = row < rows.end - rows.begin;
      float sum = 0.0f;
      if (exists) {
        const T* o = row_pointer<T>(args.o, s.q, rows.begin + row, at.head);
        const T* dout = row_pointer<T>(args.dout, s.q, rows.begin + row, at.head);
        sum = row_product<T, kVectorSize<T>>(dout, o, a.head_dim_v, lane, kLanes);
      }
#pragma unroll
      for (int distance = kLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(kFullWarp, sum, distance);
      if (exists && lane == 0) {
        delta[first + row] = args.dlse == nullptr ? sum : sum - args.dlse[first + row];
      }
    }
  });
}

// Where element (row, column) of a tile of dq lies, by the layout of a warpgroup's sums.
template <int kBlockM>
struct DqOrder {
  // The first row and column that float4 number i of a tile holds: (r, c), (r, c + 1), (r + 8, c), (r + 8, c + 1).
  CUFLASH_HD static constexpr int row(int i) {
    const int thread = i % kGroupThreads;
    return (kBlockM == 2 * kGroupRows ? i / (8 * kGroupThreads) * kGroupRows : 0) + thread / 32 * 16 + thread % 32 / 4;
  }
  CUFLASH_HD static constexpr int column(int i) {
    return (kBlockM == 2 * kGroupRows ? 0 : i / (8 * kGroupThreads) * 64) + i / kGroupThreads % 8 * 8 + i % 4 * 2;
  }
};

template <int kRow>
inline constexpr int kFinishPitch = kBwdTiles[kRow].head_dim + 8;  // elements: a row begins four banks behind the last

template <int kRow>
inline constexpr size_t kFinishBytes = static_cast<size_t>(kBwdTiles[kRow].block_m) * (2 * kFinishPitch<kRow>) + 16;

template <class T, int kRow>
__global__ void __launch_bounds__(kBwdRowThreads)
    bwd_finish_kernel(const BwdArgs args, const float* delta, const float* dq_sums) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kBlockM = kTile.block_m;
  constexpr int kPitch = kFinishPitch<kRow>;
  extern __shared__ __align__(1024) unsigned char shared[];
  T* staged = reinterpret_cast<T*>(shared);
  unsigned* marks = reinterpret_cast<unsigned*>(staged + kBlockM * kPitch);  // rows that are not finite
  const Attention& a = args.attention;
  for_each_dq_tile<kBlockM>(a, [&](const TileCoord& at, const Sequence& s, const Range& rows, int64_t tile) {
    __syncthreads();  // the tile before is done
    if (threadIdx.x < kBlockM / 32) marks[threadIdx.x] = 0;
    __syncthreads();
    const float4* sums = reinterpret_cast<const float4*>(dq_sums + tile * kTile.dq_floats());
#pragma unroll
    for (int j = 0; j < kTile.dq_floats() / 4 / kBwdRowThreads; ++j) {
      const int i = j * kBwdRowThreads + threadIdx.x;
      const float4 x = sums[i];
      const int row = DqOrder<kBlockM>::row(i);
      const int column = DqOrder<kBlockM>::column(i);
      const auto put = [&](int r, float left, float right) {
        *reinterpret_cast<uint32_t*>(staged + r * kPitch + column) = pack<T>(left * a.scale, right * a.scale);
        if (!((left - left) + (right - right) == 0.0f) && column < a.head_dim) atomicOr(&marks[r / 32], 1u << r % 32);
      };
      put(row, x.x, x.y);
      put(row + 8, x.z, x.w);
    }
    __syncthreads();
    constexpr int kChunks = kTile.head_dim / 8;
    const int count = rows.end - rows.begin;
#pragma unroll
    for (int i = threadIdx.x; i < kBlockM * kChunks; i += kBwdRowThreads) {
      const int row = i / kChunks;
      const int column = i % kChunks * 8;
      if (row >= count || column >= a.head_dim) continue;
      T* to = mutable_row_pointer<T>(args.dq, s.q, rows.begin + row, at.head) + column;
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(staged + row * kPitch + column);
    }
    if (!masks_pairs(a)) return;
    __syncthreads();  // rows are written twice, by different threads
#pragma unroll 1
    for (int row = threadIdx.x / 32; row < count; row += kBwdRowThreads / 32) {
      if ((marks[row / 32] >> row % 32 & 1) == 0) continue;
      bwd_exact_query<T, kTile.head_dim>(args, delta, s, at.batch, at.head, rows.begin + row, threadIdx.x % 32);
    }
  });
}

}  // namespace cuflash::sm90
