// SPDX-License-Identifier: MIT
// The order of tiles in the room sm90: each is computed once, and blocks have about as much to do under a causal mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
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
  return a;
}

// Calls f(block, tile) for all tiles, block after block, each in its order.
template <class F>
void for_each_tile(const Schedule& schedule, F&& f) {
  for (int32_t block = 0; block < schedule.blocks; ++block) {
    for (int64_t turn = 0; turn * schedule.blocks < schedule.tiles; ++turn) {
      const int64_t tile = schedule.tile(turn, block);
      if (tile < schedule.tiles) f(block, schedule.at(tile));
    }
  }
}

TEST(ScheduleTest, EveryTileOnce) {
  for (const bool causal : {false, true}) {
    for (const int32_t blocks : {1, 2, 7, 132}) {
      for (const int32_t seqlen : {1, 128, 129, 1000}) {
        for (const int32_t heads : {1, 3, 50}) {
          const Attention a = attention(3, heads, seqlen, causal);
          const Schedule schedule = Schedule::of(a, 128, blocks);
          std::map<std::tuple<int32_t, int32_t, int32_t>, int> seen;
          for_each_tile(schedule, [&](int32_t, const TileCoord& at) { ++seen[{at.batch, at.head, at.block}]; });
          ASSERT_EQ(static_cast<int64_t>(seen.size()), schedule.tiles);
          for (const auto& [at, count] : seen) ASSERT_EQ(count, 1);
          EXPECT_EQ(std::get<0>(seen.begin()->first), 0);
          EXPECT_EQ(std::get<0>(seen.rbegin()->first), 2);
          EXPECT_EQ(std::get<1>(seen.rbegin()->first), heads - 1);
          EXPECT_EQ(std::get<2>(seen.rbegin()->first), ceil_div(seqlen, 128) - 1);
        }
      }
    }
  }
}

// The work of the busiest block, in steps of block_n keys and a tile's own cost of half a step, over the mean.
double imbalance(const FwdTile& tile, int32_t heads, int32_t seqlen) {
  const Schedule schedule = Schedule::of(attention(1, heads, seqlen, true), tile.block_m, kSms);
  std::vector<double> work(kSms, 0.0);
  for_each_tile(schedule, [&](int32_t block, const TileCoord& at) {
    const int32_t keys = std::min(seqlen, (at.block + 1) * tile.block_m);
    work[static_cast<size_t>(block)] += ceil_div(keys, tile.block_n) + 0.5;
  });
  return *std::max_element(work.begin(), work.end()) * kSms / std::accumulate(work.begin(), work.end(), 0.0);
}

// 2048 columns of heads and 16,384 rows: the grid of FlashAttention-2's paper.
TEST(ScheduleTest, CausalWorkIsEven) {
  for (const FwdTile& tile : kFwdTiles) {
    for (int32_t seqlen = 512; seqlen <= 16384; seqlen *= 2) {
      const int32_t heads = 16384 / seqlen * 2048 / tile.head_dim;
      EXPECT_LE(imbalance(tile, heads, seqlen), 1.05) << "capacity " << tile.head_dim << ", length " << seqlen;
    }
  }
}

// Near 2^31 tiles and more, nothing is lost to 32 bits.
TEST(ScheduleTest, ManyTiles) {
  for (const bool causal : {false, true}) {
    const Schedule schedule = Schedule::of(attention(1 << 20, 1 << 10, 300, causal), 128, kSms);
    EXPECT_EQ(schedule.tiles, int64_t{3} << 30);
    const TileCoord last = schedule.at(schedule.tiles - 1);
    EXPECT_EQ(last.batch, (1 << 20) - 1);
    EXPECT_EQ(last.head, (1 << 10) - 1);
    EXPECT_EQ(last.block, causal ? 0 : 2);
  }
}

TEST(KeyScheduleTest, EveryTileOnce) {
  for (const bool causal : {false, true}) {
    for (const int32_t seqlen : {1, 128, 129, 1000, 40000}) {
      for (const int32_t heads : {1, 3, 50}) {
        const KeySchedule schedule = KeySchedule::of(attention(3, heads, seqlen, causal), 128);
        std::set<std::tuple<int32_t, int32_t, int32_t>> seen;
        for (uint32_t tile = 0; tile < schedule.tiles; ++tile) {
          const TileCoord at = schedule.at(tile);
          EXPECT_TRUE(at.batch < 3 && at.head < heads && at.block < ceil_div(seqlen, 128));
          seen.emplace(at.batch, at.head, at.block);
        }
        EXPECT_EQ(static_cast<int32_t>(seen.size()), 3 * heads * ceil_div(seqlen, 128));
      }
    }
  }
}

// Under a causal mask the first keys are seen by the most rows: in a group of heads they come first.
TEST(KeyScheduleTest, LongestTilesFirst) {
  const KeySchedule causal = KeySchedule::of(attention(2, 16, 4096, true), 128);
  EXPECT_EQ(causal.group_heads, 8u) << "256 tiles of 32 blocks a head";
  EXPECT_EQ(causal.at(7).head, 7);
  EXPECT_EQ(causal.at(7).block, 0);
  EXPECT_EQ(causal.at(8).head, 0);
  EXPECT_EQ(causal.at(8).block, 1);
  const KeySchedule full = KeySchedule::of(attention(2, 16, 4096, false), 128);
  EXPECT_EQ(full.at(7).head, 0);
  EXPECT_EQ(full.at(7).block, 7);
}

TEST(KeyScheduleTest, ManyTiles) {
  const KeySchedule schedule = KeySchedule::of(attention(1, 1, INT32_MAX, true), 1);
  EXPECT_EQ(schedule.tiles, uint32_t{INT32_MAX});
  EXPECT_EQ(schedule.at(schedule.tiles - 1).block, INT32_MAX - 1);
}

}  // namespace
}  // namespace cuflash::sm90
