// SPDX-License-Identifier: MIT
// Copies tiles of 16-bit rows to shared memory, by all threads of a block together, 16 bytes at a time and without
// waiting: the caller commits, waits and synchronises. What lies past the rows in use or past head_dim becomes 0.
#pragma once

#include "kernels/common/sequence.h"
#include "kernels/cp_async/ptx.cuh"
#include "kernels/cp_async/swizzle.h"

namespace cuflash::cp_async {

// A chunk of which only the first `count` elements exist, perhaps none, at once: cp.async reads multiples of 4 bytes.
template <class T>
__device__ __forceinline__ void store_part(uint32_t to, const T* from, int count) {
  const uint16_t* elements = reinterpret_cast<const uint16_t*>(from);
#pragma unroll
  for (int e = 0; e < kChunk; e += 2) {
    const uint32_t low = e < count ? elements[e] : 0;
    const uint32_t high = e + 1 < count ? elements[e + 1] : 0;
    store_pair(to + 2 * e, low | high << 16);
  }
}

// The tiles of kBlockRows x kHeadDim that follow each other in the rows of a head.
template <class T, int kThreads, int kBlockRows, int kHeadDim>
struct TileStream {
  using Tile = SwizzledTile<kBlockRows, kHeadDim>;
  using Chunks = ThreadChunks<Tile, kThreads>;
  static constexpr int kRowStep = Chunks::kRowStep;
  static constexpr int kPieces = kHeadDim / Tile::kPieceDim;

  const T* from;  // this thread's first chunk of the next tile

  // `first` is row 0 of the first tile.
  __device__ __forceinline__ TileStream(const T* first, int64_t row_stride)
      : from(first + Chunks(threadIdx.x).row * row_stride + Chunks(threadIdx.x).dim) {}

  // The next tile, of whose rows `count` exist; what is missing becomes 0.
  __device__ __forceinline__ void copy(uint32_t tile, int64_t row_stride, int count, int head_dim) {
    const auto [row, dim] = Chunks(threadIdx.x);
    uint32_t to = tile + Tile::offset(row, dim);
    if (count >= kBlockRows && head_dim == kHeadDim) {
#pragma unroll
      for (int first = 0; first < kBlockRows; first += kRowStep, from += kRowStep * row_stride) {
        if (kBlockRows % kRowStep != 0 && row + first >= kBlockRows) continue;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          copy_16_bytes(to + first * Tile::kRowBytes + piece * Tile::kPieceBytes, from + piece * Tile::kPieceDim);
        }
      }
      return;
    }
#pragma unroll 1
    for (int first = 0; first < kBlockRows; first += kRowStep, from += kRowStep * row_stride) {
      if (row + first >= kBlockRows) continue;
#pragma unroll 1
      for (int piece = 0; piece < kPieces; ++piece) {
        const int elements = row + first < count ? head_dim - dim - piece * Tile::kPieceDim : 0;
        const uint32_t target = to + first * Tile::kRowBytes + piece * Tile::kPieceBytes;
        const T* source = from + piece * Tile::kPieceDim;
        if (elements >= kChunk) {
          copy_16_bytes(target, source);
        } else {
          store_part(target, source, elements);
        }
      }
    }
  }
};

}  // namespace cuflash::cp_async
