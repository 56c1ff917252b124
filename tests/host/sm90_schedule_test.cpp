// SPDX-License-Identifier: MIT
// The order of tiles in the room sm90: each is computed once, and blocks have about as much to do under a causal mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/common/mask.h"
#include "kernels/sm90/schedule.h"
#include "kernels/sm90/tiles.h"

namespace cuflash::sm90 {
namespace {

constexpr int32_t kSms = 132;  // of an NVIDIA H200

Attention attention(int32_t batch, int32_t num_heads, int32_t seqlen, bool causal) {
  Attention a{};
  a.batch = batch;
  a.num_heads = a.num_heads_k = num_heads;
  a.seqlen_q = a.seqlen_k = seqlen;
  a.window_left = kUnlimited;
  a.window_right = causal ? 0 : kUnlimited;
  a.head_dim = a.head_dim_v = 128;
  return a;
}

// Calls f(block, tile) for all tiles, block after block, each in its order.
template <class F>
void for_each_tile(const Schedule& schedule, F&& f) {
  for (int32_t block = 0; block < schedule.blocks; ++block) {
    for (int64_t turn = 0; turn * schedule.blocks < schedule.places; ++turn) {
      const int64_t place = schedule.place(turn, block);
      if (place >= schedule.places) continue;
      for (int number = 0; number < schedule.tiles_at(place); ++number) f(block, schedule.at(place, number));
    }
  }
}

TEST(ScheduleTest, EveryTileOnce) {
  for (const bool causal : {false, true}) {
    for (const int32_t blocks : {1, 2, 7, 132}) {
      for (const int32_t seqlen : {1, 128, 129, 300, 1000, 4000}) {
        for (const int32_t heads : {1, 2, 3, 50, 128}) {
          const Schedule schedule = Schedule::of(attention(3, heads, seqlen, causal), 128, blocks);
          std::map<std::tuple<int32_t, int32_t, int32_t>, int> seen;
          for_each_tile(schedule, [&](int32_t, const TileCoord& at) { ++seen[{at.batch, at.head, at.block}]; });
          ASSERT_EQ(static_cast<int64_t>(seen.size()), int64_t{3} * heads * ceil_div(seqlen, 128));
          for (const auto& [at, count] : seen) {
            ASSERT_EQ(count, 1);
            const auto& [batch, head, block] = at;
            ASSERT_TRUE(batch >= 0 && batch < 3 && head >= 0 && head < heads);
            ASSERT_TRUE(block >= 0 && block < ceil_div(seqlen, 128));
          }
        }
      }
    }
  }
}

TEST(ScheduleTest, NoRowsNoTiles) { EXPECT_EQ(Schedule::of(attention(2, 64, 0, true), 128, 0).places, 0); }

// Without a mask, the tiles of a head follow each other.
TEST(ScheduleTest, HeadAfterHead) {
  const Schedule schedule = Schedule::of(attention(2, 64, 1000, false), 128, kSms);
  EXPECT_EQ(schedule.places, 2 * 64 * 8);
  for (int64_t place = 0; place < schedule.places; ++place) {
    const TileCoord at = schedule.at(place, 0);
    ASSERT_EQ((at.batch * 64 + at.head) * 8 + at.block, place);
    ASSERT_EQ(schedule.tiles_at(place), 1);
  }
}

int64_t head_of(const Schedule& schedule, const TileCoord& at) {
  return int64_t{at.batch} * schedule.num_heads + at.head;
}

// Tiles of two heads, which together are as long as those of every other pair, the longer one first.
TEST(ScheduleTest, PairsAreAlike) {
  for (const int32_t seqlen : {128, 400, 1000, 4096}) {
    const Schedule schedule = Schedule::of(attention(4, 256, seqlen, true), 128, kSms);
    ASSERT_GT(schedule.pairs(), 0);
    for (int64_t place = 0; place < schedule.pairs(); ++place) {
      ASSERT_EQ(schedule.tiles_at(place), 2);
      const TileCoord first = schedule.at(place, 0);
      const TileCoord second = schedule.at(place, 1);
      ASSERT_EQ(head_of(schedule, first) / 2, place / schedule.blocks_per_head);
      ASSERT_EQ(head_of(schedule, second), head_of(schedule, first) ^ 1);
      ASSERT_EQ(first.block + second.block, schedule.blocks_per_head - 1);
      ASSERT_GE(first.block, second.block);
    }
  }
}

// Of what is not paired the longest comes first, in order and in reverse order by turns.
TEST(ScheduleTest, LongestSingleTilesFirst) {
  for (const int32_t heads : {1, 20, 77, 256}) {
    const Schedule schedule = Schedule::of(attention(2, heads, 2000, true), 128, kSms);
    int32_t longest = schedule.blocks_per_head - 1;
    for (int64_t place = schedule.pairs(); place < schedule.places; ++place) {
      ASSERT_EQ(schedule.tiles_at(place), 1);
      const TileCoord at = schedule.at(place, 0);
      ASSERT_LE(at.block, longest);
      longest = at.block;
    }
    EXPECT_EQ(longest, 0);
    for (const int64_t turn : {0, 1, 2, 3}) {
      EXPECT_EQ(schedule.place(turn, 5), turn * kSms + (turn % 2 == 0 ? 5 : kSms - 1 - 5));
    }
  }
}

// Enough is left to even out, and not much more.
TEST(ScheduleTest, WholeTurnsOfPairs) {
  for (int32_t heads = 1; heads <= 512; ++heads) {
    for (const int32_t seqlen : {100, 700, 4096}) {
      const Schedule schedule = Schedule::of(attention(1, heads, seqlen, true), 128, kSms);
      const int64_t tiles = int64_t{heads} * schedule.blocks_per_head;
      const int64_t left = tiles - 2 * schedule.pairs();
      ASSERT_LT(left, 2 * (kSms + kSms * 3 / 4 + schedule.blocks_per_head)) << heads << " heads";
      ASSERT_GE(left, std::min<int64_t>(tiles, 2 * (kSms * 3 / 4))) << heads << " heads";
      ASSERT_LT(kSms - 1 - (schedule.pairs() + kSms - 1) % kSms, schedule.blocks_per_head) << heads << " heads";
    }
  }
}

// ---- Entries whose lengths the device alone knows

// A batch of packed entries, sorted as a block sorts it.
struct Packed {
  std::vector<int32_t> cu_seqlens = {0};
  Attention a;
  Schedule schedule;
  SortedEntries entries;

  Packed(const std::vector<int32_t>& lengths, int32_t num_heads, bool causal, int block_m, int32_t bound = 0) {
    for (const int32_t length : lengths) cu_seqlens.push_back(cu_seqlens.back() + length);
    const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
    a = attention(static_cast<int32_t>(lengths.size()), num_heads, std::max(longest, bound), causal);
    a.total_q = a.total_k = cu_seqlens.back();
    a.cu_seqlens_q = a.cu_seqlens_k = cu_seqlens.data();
    schedule = Schedule::of(a, block_m, kSms);
    if (!schedule.by_entry) return;
    const auto count = static_cast<uint32_t>(a.batch);
    for (uint32_t i = 0; i < count; ++i) {
      entries.sizes[i] = SortedEntries::size_of(a, static_cast<int32_t>(i), block_m);
    }
    SortedEntries sorted;
    for (uint32_t i = 0; i < count; ++i) {
      sorted.entries[entries.rank_of(i, count)] = {i, entries.sizes[i].row_blocks};
    }
    entries = sorted;
  }
  Packed(const Packed&) = delete;

  // Calls f(block, tile) for all tiles, block after block, each in its order.
  template <class F>
  void for_each_tile(F&& f) const {
    for (int32_t block = 0; block < schedule.blocks; ++block) {
      TileWalk<true> walk(schedule, entries, a.batch);
      for (int64_t turn = 0; turn * schedule.blocks < walk.places; ++turn) {
        const int64_t place = schedule.place(turn, block);
        if (place >= walk.places) continue;
        for (int number = 0; number < walk.tiles_at(place); ++number) f(block, walk.at(place, number));
      }
    }
  }
};

const std::vector<std::vector<int32_t>> kLengths = {
    {1},
    {0},
    {0, 0, 5, 0},
    {128, 129, 127},
    {300, 4000, 0, 1, 1000, 1000},
    {4032, 4032, 4032, 4032, 4032, 1, 900},
    {30000, 128, 1, 128, 128, 700, 128, 128, 128},
    {8192, 4096, 2048, 1024, 512, 512},
    std::vector<int32_t>(Schedule::kMostSorted, 77)};

TEST(SortedEntriesTest, EveryTileOnce) {
  for (const std::vector<int32_t>& lengths : kLengths) {
    for (const bool causal : {false, true}) {
      for (const int32_t heads : {1, 2, 3, 16}) {
        const Packed packed(lengths, heads, causal, 128);
        ASSERT_TRUE(packed.schedule.by_entry);
        std::map<std::tuple<int32_t, int32_t, int32_t>, int> seen;
        packed.for_each_tile([&](int32_t, const TileCoord& at) { ++seen[{at.batch, at.head, at.block}]; });
        size_t tiles = 0;
        for (const int32_t length : lengths) tiles += static_cast<size_t>(heads * ceil_div(length, 128));
        ASSERT_EQ(seen.size(), tiles);
        for (const auto& [at, count] : seen) {
          ASSERT_EQ(count, 1);
          const auto& [batch, head, block] = at;
          ASSERT_TRUE(batch >= 0 && batch < packed.a.batch && head >= 0 && head < heads);
          ASSERT_TRUE(block >= 0 && block < ceil_div(lengths[static_cast<size_t>(batch)], 128));
        }
      }
    }
  }
}

TEST(SortedEntriesTest, MostKeysFirst) {
  const Packed packed({300, 4000, 0, 1, 1000, 1000}, 2, false, 128);
  const std::vector<uint32_t> order = {1, 4, 5, 0, 3, 2};
  for (size_t rank = 0; rank < order.size(); ++rank) EXPECT_EQ(packed.entries.entries[rank].number, order[rank]);
}

// The order of the entries and a bound that is far too large change nothing. Few tiles, and odd numbers of heads and of blocks
// of rows, are as even as dense ones.
TEST(SortedEntriesTest, WorkIsEven) {
  const FwdTile& tile = kFwdTiles[1];
  struct Even {
    std::vector<int32_t> lengths;
    int32_t heads;
    double most;
  };
  const std::vector<Even> cases = {
      {{8192, 4096, 2048, 1024, 512, 512}, 16, 1.05},
      {{4096, 4096, 4096, 4096}, 16, 1.05},
      {std::vector<int32_t>(4, 15 * 128), 16, 1.05},
      {std::vector<int32_t>(2, 63 * 128), 16, 1.05},
      {std::vector<int32_t>(9, 31 * 128), 15, 1.05},
      {std::vector<int32_t>(2, 15 * 128), 8, 1.10},
      {{1500, 1100, 2000, 1900, 700, 1800, 900, 1300}, 16, 1.08}};
  for (const Even& c : cases) {
    for (const bool causal : {false, true}) {
      for (const int32_t bound : {0, 65536}) {
        std::vector<int32_t> lengths = c.lengths;
        if (bound > 0) std::reverse(lengths.begin(), lengths.end());
        const Packed packed(lengths, c.heads, causal, tile.block_m, bound);
        std::vector<double> work(kSms, 0.0);
        packed.for_each_tile([&](int32_t block, const TileCoord& at) {
          const int32_t length = lengths[static_cast<size_t>(at.batch)];
          const int32_t keys = causal ? std::min(length, (at.block + 1) * tile.block_m) : length;
          work[static_cast<size_t>(block)] += ceil_div(keys, tile.block_n) + 2.0;
        });
        const double sum = std::accumulate(work.begin(), work.end(), 0.0);
        const double longest = ceil_div(*std::max_element(lengths.begin(), lengths.end()), tile.block_n) + 2.0;
        const double most = *std::max_element(work.begin(), work.end());
        // Without a mask all tiles of an entry are alike, and some blocks have one more.
        EXPECT_LE(most, std::max(c.most * sum / kSms, longest) + (causal ? 0.0 : longest))
            << lengths[0] << " rows first, " << c.heads << " heads" << (causal ? ", causal" : "");
      }
    }
  }
}

// Too many entries, and dense ones, have the tiles of the bound.
TEST(SortedEntriesTest, OnlyForFewEntriesWithLengths) {
  EXPECT_FALSE(Packed(std::vector<int32_t>(Schedule::kMostSorted + 1, 77), 2, false, 128).schedule.by_entry);
  EXPECT_FALSE(Schedule::of(attention(2, 2, 77, false), 128, kSms).by_entry);
}

// ---- On the grid of FlashAttention-2's paper: 2048 columns of heads and 16,384 rows.

struct GridCase {
  FwdTile tile;
  int32_t heads, seqlen;
};

std::vector<GridCase> grid() {
  std::vector<GridCase> cases;
  for (const FwdTile& tile : kFwdTiles) {
    for (int32_t seqlen = 512; seqlen <= 16384; seqlen *= 2) {
      cases.push_back({tile, 16384 / seqlen * 2048 / tile.head_dim, seqlen});
    }
  }
  return cases;
}

Schedule causal_schedule(const GridCase& c) {
  return Schedule::of(attention(1, c.heads, c.seqlen, true), c.tile.block_m, kSms);
}

// The work of the busiest block, in steps of block_n keys and a tile's own cost of two steps, over the mean.
double imbalance(const GridCase& c) {
  std::vector<double> work(kSms, 0.0);
  for_each_tile(causal_schedule(c), [&](int32_t block, const TileCoord& at) {
    const int32_t keys = std::min(c.seqlen, (at.block + 1) * c.tile.block_m);
    work[static_cast<size_t>(block)] += ceil_div(keys, c.tile.block_n) + 2.0;
  });
  return *std::max_element(work.begin(), work.end()) * kSms / std::accumulate(work.begin(), work.end(), 0.0);
}

TEST(ScheduleTest, CausalWorkIsEven) {
  for (const GridCase& c : grid()) {
    EXPECT_LE(imbalance(c), 1.045) << "capacity " << c.tile.head_dim << ", length " << c.seqlen;
  }
}

// In a turn of pairs blocks read the keys of neighbouring heads, and of no more than they have tiles for.
TEST(ScheduleTest, FewHeadsAtOneTime) {
  for (const GridCase& c : grid()) {
    const Schedule schedule = causal_schedule(c);
    for (int64_t turn = 0; (turn + 1) * kSms <= schedule.pairs(); ++turn) {
      std::set<int64_t> heads;
      for (int32_t block = 0; block < kSms; ++block) {
        const int64_t place = schedule.place(turn, block);
        for (const int number : {0, 1}) heads.insert(head_of(schedule, schedule.at(place, number)));
      }
      const int64_t count = *heads.rbegin() - *heads.begin() + 1;
      ASSERT_LE(count, 2 * (kSms / schedule.blocks_per_head + 2))
          << "capacity " << c.tile.head_dim << ", length " << c.seqlen << ", turn " << turn;
    }
  }
}

// Near 2^31 tiles and more, nothing is lost to 32 bits.
TEST(ScheduleTest, ManyTiles) {
  constexpr int64_t kTiles = int64_t{3} << 30;
  const Schedule full = Schedule::of(attention(1 << 20, 1 << 10, 300, false), 128, kSms);
  const Schedule causal = Schedule::of(attention(1 << 20, 1 << 10, 300, true), 128, kSms);
  EXPECT_EQ(full.places, kTiles);
  EXPECT_EQ(causal.places, kTiles - causal.pairs());
  EXPECT_GT(causal.pairs(), kTiles / 2 - 300);
  for (const Schedule& schedule : {full, causal}) {
    const TileCoord last = schedule.at(schedule.places - 1, 0);
    EXPECT_EQ(last.batch, (1 << 20) - 1);
    EXPECT_EQ(last.head, (1 << 10) - 1);
    EXPECT_EQ(last.block, schedule.by_length ? 0 : 2);
  }
}

TEST(KeyScheduleTest, EveryTileOnce) {
  for (const int kind : {0, 1, 2, 3}) {
    const bool causal = kind % 2 == 1;
    const bool deterministic = kind / 2 == 1;
    for (const int32_t seqlen : {1, 128, 129, 1000, 40000}) {
      for (const int32_t heads : {1, 3, 50}) {
        const KeySchedule schedule = KeySchedule::of(attention(3, heads, seqlen, causal), 128, deterministic);
        std::set<std::tuple<int32_t, int32_t, int32_t>> seen;
        std::map<std::pair<int32_t, int32_t>, int32_t> before;  // of a head, the tile that came last
        for (uint32_t tile = 0; tile < schedule.tiles; ++tile) {
          const TileCoord at = schedule.at(tile);
          EXPECT_TRUE(at.batch < 3 && at.head < heads && at.block < ceil_div(seqlen, 128));
          seen.emplace(at.batch, at.head, at.block);
          const auto [last, is_first] = before.try_emplace({at.batch, at.head}, at.block);
          if (!is_first) {
            EXPECT_EQ(at.block, last->second + (deterministic ? -1 : 1));
          }
          last->second = at.block;
        }
        EXPECT_EQ(static_cast<int32_t>(seen.size()), 3 * heads * ceil_div(seqlen, 128));
      }
    }
  }
}

// A deterministic call waits, with a tile of keys, for all that come before: those of later keys that the same rows see.
TEST(KeyScheduleTest, TurnsOfTilesOfKeys) {
  constexpr int32_t kBlockM = 64;
  constexpr int32_t kBlockN = 128;
  for (const int64_t left : {int64_t{0}, int64_t{70}, int64_t{300}, int64_t{kUnlimited}}) {
    for (const int64_t right : {int64_t{0}, int64_t{70}, int64_t{kUnlimited}}) {
      for (const auto& [rows, keys] : {std::pair{1, 1}, {64, 128}, {65, 129}, {500, 900}, {900, 500}, {700, 700}}) {
        for (const bool bottom_right : {false, true}) {
          Attention a = attention(1, 1, rows, false);
          a.seqlen_k = keys;
          a.window_left = left;
          a.window_right = right;
          a.bottom_right = bottom_right;
          const Sequence s = sequence_of(a, 0);
          std::vector<int32_t> added(static_cast<size_t>(ceil_div(rows, kBlockM)), 0);
          for (int32_t tile = ceil_div(keys, kBlockN) - 1; tile >= 0; --tile) {
            const QueryBlocks blocks = QueryBlocks::of(a, s, block_rows(tile, kBlockN, keys), kBlockM);
            for (int32_t n = blocks.first; n < blocks.first + blocks.count; ++n) {
              ASSERT_EQ(last_tile_of_keys(a, s, n, kBlockM, kBlockN) - tile, added.at(static_cast<size_t>(n))++)
                  << rows << " rows, " << keys << " keys, window " << left << " " << right << ", tile " << tile;
            }
          }
        }
      }
    }
  }
}

// Tiles of a head are apart by as many others as have rows for the L2 cache.
TEST(KeyScheduleTest, DeterministicHeadsTakeTurns) {
  const KeySchedule schedule = KeySchedule::of(attention(2, 16, 4096, false), 128, true);
  EXPECT_EQ(schedule.group_heads, 8u) << "4 M elements are 256 tiles of 128 keys";
  EXPECT_FALSE(schedule.staggered);
  EXPECT_EQ(schedule.at(0).block, 31);
  EXPECT_EQ(schedule.at(7).head, 7);
  EXPECT_EQ(schedule.at(8).block, 30);
}

// To wait for whoever comes first pays where few tiles of keys meet, or do not meet at one time.
TEST(KeyScheduleTest, SumsOfDq) {
  EXPECT_EQ(KeySchedule::of(attention(1, 1, 16384, false), 128, false).dq, DqSums::kFirstPuts);
  EXPECT_EQ(KeySchedule::of(attention(1, 1, 1024, true), 128, false).dq, DqSums::kFirstPuts);
  EXPECT_EQ(KeySchedule::of(attention(1, 1, 1025, true), 128, false).dq, DqSums::kCleared);
  EXPECT_EQ(KeySchedule::of(attention(1, 1, 16384, true), 128, true).dq, DqSums::kInOrder);
}

TEST(KeyScheduleTest, OnlyWithoutMaskAndOrderTilesAreStaggered) {
  EXPECT_TRUE(KeySchedule::of(attention(1, 1, 4096, false), 128, false).staggered);
  EXPECT_FALSE(KeySchedule::of(attention(1, 1, 4096, true), 128, false).staggered);
}

// Under a causal mask the first keys are seen by the most rows: in a group of heads they come first.
TEST(KeyScheduleTest, LongestTilesFirst) {
  const KeySchedule causal = KeySchedule::of(attention(2, 16, 4096, true), 128, false);
  EXPECT_EQ(causal.group_heads, 8u) << "256 tiles of 32 blocks a head";
  EXPECT_EQ(causal.at(7).head, 7);
  EXPECT_EQ(causal.at(7).block, 0);
  EXPECT_EQ(causal.at(8).head, 0);
  EXPECT_EQ(causal.at(8).block, 1);
  const KeySchedule full = KeySchedule::of(attention(2, 16, 4096, false), 128, false);
  EXPECT_EQ(full.at(7).head, 0);
  EXPECT_EQ(full.at(7).block, 7);
}

TEST(KeyScheduleTest, ManyTiles) {
  const KeySchedule schedule = KeySchedule::of(attention(1, 1, INT32_MAX, true), 1, false);
  EXPECT_EQ(schedule.tiles, uint32_t{INT32_MAX});
  EXPECT_EQ(schedule.at(schedule.tiles - 1).block, INT32_MAX - 1);
}

}  // namespace
}  // namespace cuflash::sm90
