// SPDX-License-Identifier: MIT
// The index arithmetic of the GPU kernels' loops, at lengths near 2^31.
#include "kernels/common/tile_coord.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <set>
#include <tuple>

namespace cuflash {
namespace {

TEST(TileCoordTest, BlockRowsAreCutToTheLength) {
  const auto expect = [](int32_t block, int32_t length, int32_t begin, int32_t end) {
    const Range rows = block_rows(block, 8, length);
    EXPECT_EQ(rows.begin, begin) << block << " of " << length;
    EXPECT_EQ(rows.end, end) << block << " of " << length;
  };
  expect(0, 20, 0, 8);
  expect(2, 20, 16, 20);
  expect(1, 8, 8, 8);
  expect(3, 20, 20, 20);  // of an entry that is shorter than the longest
  expect(0, 0, 0, 0);
  expect(INT32_MAX / 8, INT32_MAX, INT32_MAX - 7, INT32_MAX);
  expect(INT32_MAX / 8 - 1, INT32_MAX, INT32_MAX - 15, INT32_MAX - 7);
  expect(INT32_MAX / 8, INT32_MAX - 7, INT32_MAX - 7, INT32_MAX - 7);
  expect(INT32_MAX, 5, 5, 5);
}

TEST(TileCoordTest, BlocksPartitionTheRows) {
  for (const int32_t rows_per_block : {8, 32, 64, 128}) {
    for (const int32_t length : {1, 31, 64, 1000, INT32_MAX - 130, INT32_MAX - 1, INT32_MAX}) {
      const int32_t blocks = ceil_div(length, rows_per_block);
      EXPECT_FALSE(block_rows(blocks - 1, rows_per_block, length).empty());
      EXPECT_TRUE(block_rows(blocks, rows_per_block, length).empty());
      EXPECT_EQ(block_rows(0, rows_per_block, length).begin, 0);
      EXPECT_EQ(block_rows(blocks - 1, rows_per_block, length).end, length);
      for (int32_t block = blocks > 100 ? blocks - 100 : 1; block < blocks; ++block) {
        ASSERT_EQ(block_rows(block, rows_per_block, length).begin, block_rows(block - 1, rows_per_block, length).end);
      }
    }
  }
}

// The loop over the other side: from the first visible key in steps of 32, up to the last.
TEST(TileCoordTest, StepsOverKeysEndAtTheLastOfTwoBillion) {
  Attention a{};
  a.window_left = 70;
  a.window_right = 0;
  const Sequence s{{0, 0, INT32_MAX}, {0, 0, INT32_MAX}, 0};
  const Range rows = block_rows(INT32_MAX / 8, 8, INT32_MAX);
  const Range keys = visible_keys_of_rows(a, s, rows.begin, rows.end);
  EXPECT_EQ(keys.begin, INT32_MAX - 7 - 70);
  EXPECT_EQ(keys.end, INT32_MAX);
  int32_t seen = 0;
  for (int64_t next = keys.begin; next < keys.end; next += 32) {
    const Range step = clamp_range(next, next + 32, keys.end);
    ASSERT_EQ(step.begin, keys.begin + seen);
    ASSERT_FALSE(step.empty());
    seen += step.end - step.begin;
  }
  EXPECT_EQ(seen, keys.end - keys.begin);
}

TEST(TileCoordTest, TilesCountInSixtyFourBits) {
  constexpr int32_t kBlocks = INT32_MAX / 8 + 1;
  EXPECT_EQ(ceil_div(INT32_MAX, 8), kBlocks);
  const int64_t tiles = num_tiles(70000, 3, kBlocks);
  EXPECT_EQ(tiles, int64_t{70000} * 3 * kBlocks);
  const TileCoord last = tile_coord(tiles - 1, 3, kBlocks);
  EXPECT_EQ(last.batch, 69999);
  EXPECT_EQ(last.head, 2);
  EXPECT_EQ(last.block, kBlocks - 1);
}

// On both sides of 2^32, where the division changes its width.
TEST(DivideTest, QuotientAndRestAtEveryWidth) {
  constexpr int64_t kWide = int64_t{1} << 32;
  const int64_t values[] = {0, 1, 2, 255, INT32_MAX, kWide / 2, kWide - 1, kWide, kWide + 1, 3 * kWide + 7, INT64_MAX};
  for (const int64_t a : values) {
    for (const int64_t b : values) {
      if (b == 0) continue;
      const Quotient quotient = divide(a, b);
      EXPECT_EQ(quotient.whole, a / b) << a << " / " << b;
      EXPECT_EQ(quotient.rest, a % b) << a << " / " << b;
    }
  }
}

// More tiles than 32 bits count: no two tiles of a group are the same, and all are of its heads, in order of blocks.
TEST(TileCoordTest, GroupsOfHeadsBeyondThirtyTwoBits) {
  constexpr int32_t kBatch = 70001, kHeads = 1003;
  for (const int32_t blocks : {100, kTilesInFlight, 1000, INT32_MAX / 128 + 1}) {
    const int64_t tiles = num_tiles(kBatch, kHeads, blocks);
    ASSERT_GT(tiles, int64_t{UINT32_MAX});
    const int64_t group = blocks < kTilesInFlight ? kTilesInFlight / blocks : 1;  // heads
    const int64_t heads = int64_t{kBatch} * kHeads;
    std::set<std::tuple<int32_t, int32_t, int32_t>> seen;
    for (const int64_t first : {int64_t{0}, heads / 2 / group * group, (heads - 1) / group * group}) {
      const int64_t size = std::min(group, heads - first);
      for (int64_t i = 0; i < std::min<int64_t>(size * blocks, 5000); ++i) {
        const TileCoord at = tile_coord_in_groups(first * blocks + i, kBatch, kHeads, blocks);
        const int64_t head = int64_t{at.batch} * kHeads + at.head;
        ASSERT_TRUE(head >= first && head < first + size) << "tile " << i << " of the group of head " << first;
        ASSERT_TRUE(at.head >= 0 && at.head < kHeads);
        ASSERT_EQ(at.block, i / size);
        ASSERT_TRUE(seen.emplace(at.batch, at.head, at.block).second) << "tile " << i << " of head " << first;
      }
    }
    const TileCoord last = tile_coord_in_groups(tiles - 1, kBatch, kHeads, blocks);
    EXPECT_EQ(last.batch, kBatch - 1);
    EXPECT_EQ(last.head, kHeads - 1);
    EXPECT_EQ(last.block, blocks - 1);
  }
}

}  // namespace
}  // namespace cuflash
