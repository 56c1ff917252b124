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

struct Quotient {
  int64_t whole;
  int64_t rest;
};

// a / b for a >= 0 and b > 0. A division of 64 bits takes a GPU some hundred clocks, one of 32 bits a few; a block begins
// with several of them, and nothing but very large problems needs the long ones.
CUFLASH_HD Quotient divide(int64_t a, int64_t b) {
  if (((a | b) >> 32) != 0) return {a / b, a % b};
  const uint32_t x = static_cast<uint32_t>(a);
  const uint32_t y = static_cast<uint32_t>(b);
  return {x / y, x % y};
}

// Heads of all entries, counted through.
CUFLASH_HD TileCoord block_of_head(int64_t head, int32_t num_heads, int64_t block) {
  const Quotient entry = divide(head, num_heads);
  return {static_cast<int32_t>(entry.whole), static_cast<int32_t>(entry.rest), static_cast<int32_t>(block)};
}

// Blocks of one head are neighbours: they share its keys in the L2 cache.
CUFLASH_HD TileCoord tile_coord(int64_t tile, int32_t num_heads, int32_t blocks_per_head) {
  const Quotient head = divide(tile, blocks_per_head);
  return block_of_head(head.whole, num_heads, head.rest);
}

// Block 0 of every head first, then block 1: with a causal mask, tiles in order of their length. Counted from the last
// tile down where the last blocks are the long ones.
CUFLASH_HD TileCoord tile_coord_by_block(int64_t tile, int32_t batch, int32_t num_heads) {
  const Quotient block = divide(tile, int64_t{batch} * num_heads);
  return block_of_head(block.rest, num_heads, block.whole);
}

// The same for as many heads at a time as have kTilesInFlight blocks together, head after head: what runs at one time works
// on few heads, whose rows stay in the L2 cache, and still in order of length.
inline constexpr int32_t kTilesInFlight = 256;

CUFLASH_HD TileCoord tile_coord_in_groups(int64_t tile, int32_t batch, int32_t num_heads, int32_t blocks_per_head) {
  const int32_t group_heads = blocks_per_head < kTilesInFlight ? kTilesInFlight / blocks_per_head : 1;
  const Quotient group = divide(tile, int64_t{group_heads} * blocks_per_head);
  const int64_t first = group.whole * group_heads;
  const int64_t left = int64_t{batch} * num_heads - first;
  const Quotient block = divide(group.rest, left < group_heads ? left : group_heads);
  return block_of_head(first + block.rest, num_heads, block.whole);
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
