// SPDX-License-Identifier: MIT
// The order of tiles in the room sm90: each is computed once, and blocks have about as much to do under a causal mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
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

}  // namespace
}  // namespace cuflash::sm90
