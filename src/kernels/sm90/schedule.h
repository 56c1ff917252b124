// SPDX-License-Identifier: MIT
// Which tiles a block computes, one after the other: one block per SM stays for all of them, and nothing but its number
// says what is its own.
#pragma once

#include <cstdint>

#include "kernels/common/tile_coord.h"

namespace cuflash::sm90 {

// Rows that an entry has at most. The bound that packed tensors come with may be far above all lengths, and every tile of it
// costs a look.
CUFLASH_HD int32_t most_rows(int32_t bound, const int32_t* cu_seqlens, int64_t total) {
  return cu_seqlens == nullptr ? bound : static_cast<int32_t>(clamp_to(total, 0, bound));
}
CUFLASH_HD int32_t most_queries(const Attention& a) { return most_rows(a.seqlen_q, a.cu_seqlens_q, a.total_q); }
CUFLASH_HD int32_t most_keys(const Attention& a) { return most_rows(a.seqlen_k, a.cu_seqlens_k, a.total_k); }

CUFLASH_HD bool has_device_lengths(const Attention& a) {
  return a.cu_seqlens_q != nullptr || a.cu_seqlens_k != nullptr || a.seqused_q != nullptr || a.seqused_k != nullptr;
}

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
//
// Entries whose lengths the device alone knows are sorted by each block for itself (SortedEntries), those with the most keys
// first. Their tiles are counted through, without such as have no rows: of an entry, a head after the other or, with a mask, a
// pair of heads after the other, whose tiles make pairs again, a last head alone with itself. Pairs are taken for about as many
// turns as above, then single tiles, the last row blocks of all that are left first. With more entries than kMostSorted tiles
// are those of the bound, as without such lengths, and those without rows are passed over.
struct Schedule {
  int64_t places;  // a tile, or a pair of them
  int32_t blocks;  // that work
  int32_t num_heads;
  int32_t blocks_per_head;
  bool by_length;
  int64_t heads;         // of all entries
  int64_t paired_heads;  // the first ones, an even number; by length
  bool by_entry;

  static constexpr int32_t kMostSorted = 128;

  CUFLASH_HD static Schedule of(const Attention& a, int block_m, int32_t blocks) {
    const int32_t blocks_per_head = ceil_div(most_queries(a), block_m);
    const int64_t heads = int64_t{a.batch} * a.num_heads;
    const bool by_length = masks_pairs(a);
    const int64_t turns = by_length ? turns_of_pairs(heads * blocks_per_head, blocks) : 0;
    const int64_t paired_heads = blocks_per_head > 0 ? turns * blocks / blocks_per_head * 2 : 0;
    return {
        .places = heads * blocks_per_head - paired_heads / 2 * blocks_per_head,
        .blocks = blocks,
        .num_heads = a.num_heads,
        .blocks_per_head = blocks_per_head,
        .by_length = by_length,
        .heads = heads,
        .paired_heads = paired_heads,
        .by_entry = has_device_lengths(a) && a.batch <= kMostSorted && heads * blocks_per_head <= INT32_MAX};
  }

  // That leave three quarters of a turn or more.
  CUFLASH_HD static int64_t turns_of_pairs(int64_t tiles, int32_t blocks) {
    const int64_t quarters = 2 * tiles - 3 * blocks;
    return quarters > 0 ? quarters / (int64_t{4} * blocks) : 0;
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

// Of the entries of a batch, what their order follows from, or the order: in memory that a block shares, so that every thread
// finds the place of one entry.
struct SortedEntries {
  struct Size {
    uint32_t keys;
    uint32_t row_blocks;
  };
  struct Entry {
    uint32_t number;
    uint32_t row_blocks;
  };
  union {
    Size sizes[Schedule::kMostSorted];
    Entry entries[Schedule::kMostSorted];
  };

  CUFLASH_HD static Size size_of(const Attention& a, int32_t entry, int block_m) {
    const Sequence s = sequence_of(a, entry);
    return {static_cast<uint32_t>(s.k.length), static_cast<uint32_t>(ceil_div(s.q.length, block_m))};
  }

  // From sizes: where an entry stands.
  CUFLASH_HD uint32_t rank_of(uint32_t entry, uint32_t count) const {
    uint32_t rank = 0;
    for (uint32_t other = 0; other < count; ++other) {
      rank += sizes[other].keys > sizes[entry].keys || (sizes[other].keys == sizes[entry].keys && other < entry);
    }
    return rank;
  }
};

// From place to place, upwards, by whatever order the schedule has.
template <bool kByEntry>
struct TileWalk {
  const Schedule& schedule;
  int64_t places;

  CUFLASH_HD TileWalk(const Schedule& own_schedule, const SortedEntries&, int32_t)
      : schedule(own_schedule), places(own_schedule.places) {}
  CUFLASH_HD int tiles_at(int64_t place) const { return schedule.tiles_at(place); }
  CUFLASH_HD TileCoord at(int64_t place, int number) { return schedule.at(place, number); }
};

template <>
struct TileWalk<true> {
  const Schedule& schedule;
  const SortedEntries& sorted;
  uint32_t count;      // of entries
  uint32_t num_heads;  // of an entry
  int64_t places;
  uint32_t pairs = 0;        // places of the entries and heads in front of
  uint32_t single_rank = 0;  // this entry
  uint32_t single_head = 0;  // and this head of it, from which on tiles are single
  // Where the walk is: without pairs, or in front of the singles, at an entry; then at a row block of an entry.
  uint32_t rank = 0;
  uint32_t row_block = 0;
  uint32_t before = 0;  // places in front of that

  CUFLASH_HD TileWalk(const Schedule& own_schedule, const SortedEntries& own_sorted, int32_t batch)
      : schedule(own_schedule),
        sorted(own_sorted),
        count(static_cast<uint32_t>(batch)),
        num_heads(static_cast<uint32_t>(own_schedule.num_heads)) {
    uint32_t tiles = 0, most = 0;
    for (uint32_t i = 0; i < count; ++i) {
      tiles += num_heads * row_blocks(i);
      most = row_blocks(i) > most ? row_blocks(i) : most;
    }
    places = tiles;
    if (!schedule.by_length) return;
    const auto wanted = static_cast<uint32_t>(schedule.blocks * Schedule::turns_of_pairs(tiles, schedule.blocks));
    for (; single_rank < count && pairs + places_of_pairs(single_rank) <= wanted; ++single_rank) {
      pairs += places_of_pairs(single_rank);
      places -= num_heads * row_blocks(single_rank);
    }
    if (single_rank < count && row_blocks(single_rank) > 0) {
      const uint32_t heads_in_pairs = (wanted - pairs) / row_blocks(single_rank) * 2;
      single_head = heads_in_pairs < num_heads / 2 * 2 ? heads_in_pairs : num_heads / 2 * 2;
      pairs += single_head / 2 * row_blocks(single_rank);
      places -= single_head * row_blocks(single_rank);
    }
    places += pairs;
    row_block = most;
  }

  CUFLASH_HD int tiles_at(int64_t place) const {
    if (place >= pairs) return 1;
    // In the middle of a head that is a pair with itself there is one tile.
    uint32_t first = before, at = rank;
    while (first + places_of_pairs(at) <= place) first += places_of_pairs(at++);
    const uint32_t own = static_cast<uint32_t>(place) - first;
    const uint32_t of_two = num_heads / 2 * row_blocks(at);
    return own >= of_two && 2 * (own - of_two) == row_blocks(at) - 1 ? 1 : 2;
  }

  CUFLASH_HD TileCoord at(int64_t place, int number) {
    const auto wanted = static_cast<uint32_t>(place);
    if (!schedule.by_length) {
      while (before + num_heads * row_blocks(rank) <= wanted) before += num_heads * row_blocks(rank++);
      return tile((wanted - before) / row_blocks(rank), (wanted - before) % row_blocks(rank));
    }
    return wanted < pairs ? of_pair(wanted, number == 1) : single(wanted);
  }

 private:
  CUFLASH_HD uint32_t row_blocks(uint32_t at) const { return sorted.entries[at].row_blocks; }
  // Of an entry, all of whose heads make pairs, the last of an odd number with itself.
  CUFLASH_HD uint32_t places_of_pairs(uint32_t at) const {
    return num_heads / 2 * row_blocks(at) + num_heads % 2 * ((row_blocks(at) + 1) / 2);
  }
  CUFLASH_HD TileCoord tile(uint32_t head, uint32_t block) const {
    return {static_cast<int32_t>(sorted.entries[rank].number), static_cast<int32_t>(head), static_cast<int32_t>(block)};
  }

  // The longer one first.
  CUFLASH_HD TileCoord of_pair(uint32_t place, bool second) {
    while (before + places_of_pairs(rank) <= place) before += places_of_pairs(rank++);
    const uint32_t last = row_blocks(rank) - 1;
    const uint32_t own = place - before;
    const uint32_t of_two = num_heads / 2 * (last + 1);
    if (own >= of_two) return tile(num_heads - 1, second ? own - of_two : last - (own - of_two));
    const uint32_t near = own % (last + 1);
    const bool from_end = second == (2 * near > last);
    return tile(own / (last + 1) * 2 + (from_end ? 0 : 1), from_end ? last - near : near);
  }

  // Last row blocks first, of all entries.
  CUFLASH_HD TileCoord single(uint32_t place) {
    if (before < pairs || rank < single_rank) {  // the first one
      before = pairs;
      rank = count;
    }
    for (;;) {
      if (rank == count) {
        rank = single_rank;
        --row_block;
        pass_levels(place);
      }
      const uint32_t first_head = first_single_head(rank);
      const uint32_t heads = row_block < row_blocks(rank) ? num_heads - first_head : 0;
      if (place < before + heads) return tile(first_head + place - before, row_block);
      before += heads;
      ++rank;
    }
  }

  CUFLASH_HD uint32_t first_single_head(uint32_t at) const { return at == single_rank ? single_head : 0; }

  // Row blocks that lie in front of a place and are those of the same entries are passed over together: one long entry among
  // many would take a look at all of them for each of its row blocks.
  CUFLASH_HD void pass_levels(uint32_t place) {
    for (;;) {
      uint32_t heads = 0, next = 0;  // that have this row block; the highest number of row blocks of the others
      for (uint32_t i = single_rank; i < count; ++i) {
        if (row_blocks(i) > row_block) {
          heads += num_heads - first_single_head(i);
        } else {
          next = row_blocks(i) > next ? row_blocks(i) : next;
        }
      }
      const uint32_t levels = row_block - next + 1;
      const uint32_t passed = heads > 0 ? (place - before) / heads : levels;
      if (passed < levels) {
        before += passed * heads;
        row_block -= passed;
        return;
      }
      before += levels * heads;
      row_block = next - 1;
    }
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
