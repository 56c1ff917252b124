// SPDX-License-Identifier: MIT
// Copies tiles of 16-bit rows to shared memory, by all threads of a block together, 16 bytes at a time and without
// waiting: the caller commits, waits and synchronises. What lies past the rows in use or past head_dim becomes 0.
#pragma once

#include "kernels/common/sequence.h"
#include "kernels/cp_async/ptx.cuh"
#include "kernels/cp_async/swizzle.h"

namespace cuflash::cp_async {

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
          copy_16_bytes(to + first * Tile::kRowBytes + piece * Tile::kPieceBytes, from + piece * Tile::kPieceDim, 16);
        }
      }
      return;
    }
    const T* valid = from - row * row_stride - dim;  // where nothing is read: the first row exists
#pragma unroll 1
    for (int first = 0; first < kBlockRows; first += kRowStep, from += kRowStep * row_stride) {
      if (row + first >= kBlockRows) continue;
#pragma unroll 1
      for (int piece = 0; piece < kPieces; ++piece) {
        const int elements = row + first < count ? head_dim - dim - piece * Tile::kPieceDim : 0;
        const int used = min(max(elements, 0), kChunk);
        copy_16_bytes(
            to + first * Tile::kRowBytes + piece * Tile::kPieceBytes,
            used > 0 ? from + piece * Tile::kPieceDim : valid,
            2 * used
        );
      }
    }
  }
};

}  // namespace cuflash::cp_async
