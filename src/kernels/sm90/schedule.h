// SPDX-License-Identifier: MIT
// Which tiles a block computes, one after the other: one block per SM stays for all of them, and nothing but its number
// says what is its own.
#pragma once

#include "kernels/common/tile_coord.h"

namespace cuflash::sm90 {

CUFLASH_HD int64_t greatest_common_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Rows that an entry has at most. The bound that packed tensors come with may be far above all lengths, and every tile of it
// costs a look.
CUFLASH_HD int32_t most_rows(int32_t bound, const int32_t* cu_seqlens, int64_t total) {
  return cu_seqlens == nullptr ? bound : static_cast<int32_t>(clamp_to(total, 0, bound));
}
CUFLASH_HD int32_t most_queries(const Attention& a) { return most_rows(a.seqlen_q, a.cu_seqlens_q, a.total_q); }
CUFLASH_HD int32_t most_keys(const Attention& a) { return most_rows(a.seqlen_k, a.cu_seqlens_k, a.total_k); }

// Without a mask tiles are alike and those of one head follow each other: blocks at work together read few heads' keys.
//
// With a mask they are not, and the last query rows are taken for the longest, as under a causal mask. In a group of heads
// the longest tiles come first; blocks take them in order, and in reverse order every other turn, so that a long tile is
// followed by a short one. Groups are as small as they can be with a whole number of pairs of turns in each, since what a
// group has too many would shift the next one; the last group takes the heads that are left.
struct Schedule {
  int64_t tiles;
  int32_t blocks;  // that work
  int32_t num_heads;
  int32_t blocks_per_head;
  bool by_length;
  int64_t heads;        // of all entries
  int64_t group_heads;  // by length
  int64_t groups;

  CUFLASH_HD static Schedule of(const Attention& a, int block_m, int32_t blocks) {
    const int32_t blocks_per_head = ceil_div(most_queries(a), block_m);
    const int64_t heads = int64_t{a.batch} * a.num_heads;
    const int64_t pair = int64_t{2} * blocks;
    const int64_t group_heads = pair / greatest_common_divisor(pair, blocks_per_head);
    const int64_t groups = heads < 2 * group_heads ? 1 : heads / group_heads;
    return {
        .tiles = heads * blocks_per_head,
        .blocks = blocks,
        .num_heads = a.num_heads,
        .blocks_per_head = blocks_per_head,
        .by_length = masks_pairs(a),
        .heads = heads,
        .group_heads = group_heads,
        .groups = groups};
  }

  // The number of a block's tile in a turn; there is none if it is not below `tiles`.
  CUFLASH_HD int64_t tile(int64_t turn, int32_t block) const {
    const bool reversed = by_length && turn % 2 == 1;
    return turn * blocks + (reversed ? blocks - 1 - block : block);
  }

  CUFLASH_HD TileCoord at(int64_t tile) const {
    if (!by_length) return tile_coord(tile, num_heads, blocks_per_head);
    const int64_t whole_group = divide(tile, group_heads * blocks_per_head).whole;
    const int64_t group = whole_group < groups ? whole_group : groups - 1;
    const int64_t first = group * group_heads;
    const int64_t own = group == groups - 1 ? heads - first : group_heads;
    const Quotient place = divide(tile - first * blocks_per_head, own);
    return block_of_head(first + place.rest, num_heads, blocks_per_head - 1 - place.whole);
  }
};

// Of the backward pass: tiles of keys in the order in which blocks take them from a counter. With a mask they differ in
// length, and the first are the longest: those of a few heads come first, whose rows stay in the L2 cache. All in 32 bits:
// who looks a tile up has few registers.
struct KeySchedule {
  uint32_t tiles;
  uint32_t num_heads;
  uint32_t blocks_per_head;
  uint32_t heads;        // of all entries
  uint32_t group_heads;  // whose tiles are taken block by block
  uint32_t group_size;   // heads of queries for each of keys
  bool staggered;        // tiles of a head begin at different query rows
  bool descending;       // a head's last tile comes first

  static constexpr int64_t kMaxTiles = INT32_MAX;
  static constexpr int32_t kColumnsInFlight = 1 << 15;  // of tiles

  CUFLASH_HD static int64_t tiles_of(const Attention& a, int block_n) {
    return num_tiles(a.batch, a.num_heads_k, ceil_div(most_keys(a), block_n));
  }

  // Where dq has to be repeatable, every tile waits for those of later keys, at every step: these come first, and between
  // tiles of one head those of as many others as have rows and sums that fit into the L2 cache together.
  CUFLASH_HD static KeySchedule of(const Attention& a, int block_n, bool deterministic) {
    const int32_t blocks_per_head = ceil_div(most_keys(a), block_n);
    const int32_t tiles_in_flight = deterministic ? kColumnsInFlight / a.head_dim : kTilesInFlight;
    const bool in_groups = masks_pairs(a) || deterministic;
    const int32_t group_heads = in_groups && blocks_per_head > 0 ? tiles_in_flight / blocks_per_head : 1;
    return {
        .tiles = static_cast<uint32_t>(tiles_of(a, block_n)),
        .num_heads = static_cast<uint32_t>(a.num_heads_k),
        .blocks_per_head = static_cast<uint32_t>(blocks_per_head),
        .heads = static_cast<uint32_t>(a.batch * a.num_heads_k),
        .group_heads = static_cast<uint32_t>(group_heads > 1 ? group_heads : 1),
        .group_size = static_cast<uint32_t>(cuflash::group_size(a)),
        .staggered = !masks_pairs(a) && !deterministic,
        .descending = deterministic};
  }

  CUFLASH_HD TileCoord at(uint32_t tile) const {
    const uint32_t group = tile / (group_heads * blocks_per_head);
    const uint32_t first = group * group_heads;
    const uint32_t own = heads - first < group_heads ? heads - first : group_heads;
    const uint32_t place = tile - first * blocks_per_head;
    const uint32_t head = first + place % own;
    const uint32_t block = place / own;
    return {
        static_cast<int32_t>(head / num_heads),
        static_cast<int32_t>(head % num_heads),
        static_cast<int32_t>(descending ? blocks_per_head - 1 - block : block)};
  }
};

}  // namespace cuflash::sm90
