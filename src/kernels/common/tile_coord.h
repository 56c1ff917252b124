// SPDX-License-Identifier: MIT
// A linear tile index as (batch, head, block). Grids are one-dimensional and 64-bit: no user extent is ever a grid
// dimension, and a block loops when there are more tiles than gridDim.x can hold.
#pragma once

#include "kernels/common/host_device.h"
#include "kernels/common/mask.h"
#include "kernels/kernel_args.h"

namespace cuflash {

struct TileCoord {
  int32_t batch;
  int32_t head;
  int32_t block;
};

// Blocks of one head are neighbours: they share its keys in the L2 cache.
CUFLASH_HD TileCoord tile_coord(int64_t tile, int32_t num_heads, int32_t blocks_per_head) {
  const int64_t row = tile / blocks_per_head;
  return {
      static_cast<int32_t>(row / num_heads),
      static_cast<int32_t>(row % num_heads),
      static_cast<int32_t>(tile % blocks_per_head)};
}

// Block 0 of every head first, then block 1: with a causal mask, tiles in order of their length. Counted from the last
// tile down where the last blocks are the long ones.
CUFLASH_HD TileCoord tile_coord_by_block(int64_t tile, int32_t batch, int32_t num_heads) {
  const int64_t heads = int64_t{batch} * num_heads;
  const int64_t row = tile % heads;
  return {
      static_cast<int32_t>(row / num_heads), static_cast<int32_t>(row % num_heads), static_cast<int32_t>(tile / heads)};
}

// Rows of a block, of `length` in all; empty if the block lies past the end. Near 2^31 rows, sums pass 32 bits.
CUFLASH_HD Range block_rows(int32_t block, int32_t rows_per_block, int32_t length) {
  const int64_t begin = int64_t{block} * rows_per_block;
  return clamp_range(begin, begin + rows_per_block, length);
}

CUFLASH_HD int32_t ceil_div(int32_t value, int32_t divisor) { return value / divisor + (value % divisor != 0); }

CUFLASH_HD int64_t num_tiles(int32_t batch, int32_t num_heads, int32_t blocks_per_head) {
  return int64_t{batch} * num_heads * blocks_per_head;
}

}  // namespace cuflash
