// SPDX-License-Identifier: MIT
// Where a tile of 16-bit elements lies in shared memory. A row of kHeadDim elements is cut into pieces of 64 or 32
// elements (128 or 64 bytes); all rows of a piece follow each other. Within a piece the 16-byte chunks of a row are
// exchanged by the row's number, so that eight chunks of one column, which a load of an 8x8 matrix reads, and eight of a
// row, which a copy writes, both meet every bank once.
#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

namespace cuflash::cp_async {

inline constexpr int kChunk = 8;  // elements of 16 bytes

template <int kRows, int kHeadDim>
struct SwizzledTile {
  static constexpr int kDim = kHeadDim;
  static constexpr int kPieceDim = kHeadDim % 64 == 0 ? 64 : 32;
  static constexpr int kRowBytes = 2 * kPieceDim;
  static constexpr int kPieceBytes = kRows * kRowBytes;
  static constexpr int kBytes = 2 * kRows * kHeadDim;
  static_assert(kHeadDim % 32 == 0 && kRows % 8 == 0);

  // The number that chunks of a row are exchanged by. Two rows of 64 bytes share 128: rows 2i and 2i + 1 alike.
  CUFLASH_HD static constexpr int row_key(int row) { return kPieceDim == 64 ? row % 8 : row / 2 % 4; }

  // Byte offset of the chunk that holds element (row, dim); dim is a multiple of kChunk.
  CUFLASH_HD static constexpr int offset(int row, int dim) {
    const int chunk = dim % kPieceDim / kChunk;
    return dim / kPieceDim * kPieceBytes + row * kRowBytes + ((chunk ^ row_key(row)) * 16);
  }
};

// The row of a matrix that a lane shows to load_matrices(), for 16x16 blocks of a tile. Addresses differ from tile row to
// tile row by a constant and along head_dim by an exclusive or with a constant, so that one register serves all blocks.
template <class Tile>
struct LaneAddress {
  uint32_t address;

  // The four matrices of the block at (row, dim), those below each other first.
  CUFLASH_HD static LaneAddress down_first(int lane, uint32_t tile, int row, int dim) {
    return {tile + Tile::offset(row + lane % 16, dim + lane / 16 * kChunk)};
  }
  // Those beside each other first.
  CUFLASH_HD static LaneAddress along_first(int lane, uint32_t tile, int row, int dim) {
    return {tile + Tile::offset(row + lane % 8 + lane / 16 * 8, dim + lane / 8 % 2 * kChunk)};
  }

  // In the block `row` rows and `dim` columns further on, constants after unrolling: row a multiple of 8, dim of 16 and of
  // more than the column that the address was made for.
  CUFLASH_HD uint32_t at(int row, int dim) const {
    return (address ^ (dim % Tile::kPieceDim / kChunk * 16)) + dim / Tile::kPieceDim * Tile::kPieceBytes +
           row * Tile::kRowBytes;
  }
};

// What one of kThreads threads copies of a tile: one chunk, in every kRowStep-th row and in every piece. Neighbouring
// threads share a row.
template <class Tile, int kThreads>
struct ThreadChunks {
  static constexpr int kPerRow = Tile::kPieceDim / kChunk;  // of a piece
  static constexpr int kRowStep = kThreads / kPerRow;
  static_assert(kRowStep % 8 == 0);  // a thread's chunk has the same place in all its rows
  int row;                           // the first one
  int dim;                           // in the first piece

  CUFLASH_HD explicit ThreadChunks(int thread) : row(thread / kPerRow), dim(thread % kPerRow * kChunk) {}
};

}  // namespace cuflash::cp_async
