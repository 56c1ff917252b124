// SPDX-License-Identifier: MIT
// Which tiles a block computes, one after the other: one block per SM stays for all of them, and nothing but its number
// says what is its own.
#pragma once

#include "kernels/common/tile_coord.h"

namespace cuflash::sm90 {

// Rows that an entry has at most. The bound that packed tensors come with may be far above all lengths, and every tile of it
// costs a look.
CUFLASH_HD int32_t most_rows(int32_t bound, const int32_t* cu_seqlens, int64_t total) {
  return cu_seqlens == nullptr ? bound : static_cast<int32_t>(clamp_to(total, 0, bound));
}
CUFLASH_HD int32_t most_queries(const Attention& a) { return most_rows(a.seqlen_q, a.cu_seqlens_q, a.total_q); }
CUFLASH_HD int32_t most_keys(const Attention& a) { return most_rows(a.seqlen_k, a.cu_seqlens_k, a.total_k); }

// Without a mask tiles are alike and those of one head follow each other: blocks at work together read few heads' keys.
//
// With a mask they are not, and the last query rows are taken for the longest, as under a causal mask. Two heads, whose
// rows are a and b, make pairs that are alike,
//
//   a last, b first | a last but one, b second | ... | b last, a first
//
// and a block takes a pair at a time, in order: again few heads' keys are read at one time, which stay in the L2 cache. It
// does so for as many whole turns as leave three quarters of a turn's pairs or more. Of these heads single tiles are taken
// instead, the longest of all first, in order and in reverse order by turns: so blocks end at about the same time.
struct Schedule {
  int64_t places;  // a tile, or a pair of them
  int32_t blocks;  // that work
  int32_t num_heads;
  int32_t blocks_per_head;
  bool by_length;
  int64_t heads;         // of all entries
  int64_t paired_heads;  // the first ones, an even number; by length

  CUFLASH_HD static Schedule of(const Attention& a, int block_m, int32_t blocks) {
    const int32_t blocks_per_head = ceil_div(most_queries(a), block_m);
    const int64_t heads = int64_t{a.batch} * a.num_heads;
    const bool by_length = masks_pairs(a);
    const int64_t quarters = 2 * heads * blocks_per_head - 3 * blocks;  // of pairs, but for those of the last heads
    const int64_t turns = by_length && quarters > 0 ? quarters / (int64_t{4} * blocks) : 0;
    const int64_t paired_heads = blocks_per_head > 0 ? turns * blocks / blocks_per_head * 2 : 0;
    return {
        .places = heads * blocks_per_head - paired_heads / 2 * blocks_per_head,
        .blocks = blocks,
        .num_heads = a.num_heads,
        .blocks_per_head = blocks_per_head,
        .by_length = by_length,
        .heads = heads,
        .paired_heads = paired_heads};
  }

  // The number of a block's place in a turn; there is none if it is not below `places`.
  CUFLASH_HD int64_t place(int64_t turn, int32_t block) const {
    const bool reversed = by_length && turn % 2 == 1;
    return turn * blocks + (reversed ? blocks - 1 - block : block);
  }

  CUFLASH_HD int64_t pairs() const { return paired_heads / 2 * blocks_per_head; }
  CUFLASH_HD int tiles_at(int64_t place) const { return place < pairs() ? 2 : 1; }

  // The tile of a place, or the first or second of a pair, the longer one first.
  CUFLASH_HD TileCoord at(int64_t place, int number) const {
    if (!by_length) return tile_coord(place, num_heads, blocks_per_head);
    if (place < pairs()) {
      const Quotient pair = divide(place, blocks_per_head);
      const int64_t last = blocks_per_head - 1;
      const bool second = (2 * pair.rest > last) == (number == 0);
      return block_of_head(2 * pair.whole + second, num_heads, second ? pair.rest : last - pair.rest);
    }
    const Quotient rank = divide(place - pairs(), heads - paired_heads);
    return block_of_head(paired_heads + rank.rest, num_heads, blocks_per_head - 1 - rank.whole);
  }
};

// How tiles of keys come together in sums of dq.
enum class DqSums {
  kCleared,    // all add to zeros
  kFirstPuts,  // whoever comes first puts its sums there, and others that are there by then wait
  kInOrder,    // the same, and each waits for its turn: repeatable
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
  DqSums dq;

  static constexpr int64_t kMaxTiles = INT32_MAX;
  static constexpr int32_t kFewBlocks = 8;  // of a head: beyond, under a mask, waiting costs more than clearing
  static constexpr int32_t kElementsInFlight = 1 << 22;  // of keys

  CUFLASH_HD static int64_t tiles_of(const Attention& a, int block_n) {
    return num_tiles(a.batch, a.num_heads_k, ceil_div(most_keys(a), block_n));
  }

  // Where dq has to be repeatable, every tile waits for those of later keys, at every step: these come first, and between
  // tiles of one head those of as many others as have rows and sums that fit into the L2 cache together.
  CUFLASH_HD static KeySchedule of(const Attention& a, int block_n, bool deterministic) {
    const int32_t blocks_per_head = ceil_div(most_keys(a), block_n);
    const int32_t tiles_in_flight = deterministic ? kElementsInFlight / a.head_dim / block_n : kTilesInFlight;
    const bool in_groups = masks_pairs(a) || deterministic;
    const bool clears = masks_pairs(a) && blocks_per_head > kFewBlocks;
    const int32_t group_heads = in_groups && blocks_per_head > 0 ? tiles_in_flight / blocks_per_head : 1;
    return {
        .tiles = static_cast<uint32_t>(tiles_of(a, block_n)),
        .num_heads = static_cast<uint32_t>(a.num_heads_k),
        .blocks_per_head = static_cast<uint32_t>(blocks_per_head),
        .heads = static_cast<uint32_t>(a.batch) * static_cast<uint32_t>(a.num_heads_k),
        .group_heads = static_cast<uint32_t>(group_heads > 1 ? group_heads : 1),
        .group_size = static_cast<uint32_t>(cuflash::group_size(a)),
        .staggered = !masks_pairs(a) && !deterministic,
        .descending = deterministic,
        .dq = deterministic ? DqSums::kInOrder
              : clears      ? DqSums::kCleared
                            : DqSums::kFirstPuts};
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

// Blocks of query rows that see a key of a tile: [first, first + count).
struct QueryBlocks {
  int32_t first;
  int32_t count;

  CUFLASH_HD static QueryBlocks of(const Attention& a, const Sequence& s, const Range& keys, int block_m) {
    if (keys.empty()) return {};
    const Range rows = visible_rows_of_keys(a, s, keys.begin, keys.end);
    if (rows.empty()) return {};
    const int32_t first = rows.begin / block_m;
    return {first, ceil_div(rows.end, block_m) - first};
  }
};

// The last tile of keys that a block of query rows sees, if it sees any. Between that and another one that it sees, it sees
// all: their distance says how many come first if the last ones do.
CUFLASH_HD int32_t
last_tile_of_keys(const Attention& a, const Sequence& s, int32_t query_block, int block_m, int block_n) {
  const Range rows = block_rows(query_block, block_m, s.q.length);
  return (visible_keys_of_rows(a, s, rows.begin, rows.end).end - 1) / block_n;
}

}  // namespace cuflash::sm90
