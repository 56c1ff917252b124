// SPDX-License-Identifier: MIT
// How work and memory are laid out: tiles of a grid, pieces of the workspace, shared memory of a tile table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/common/tile_coord.h"
#include "kernels/common/tile_table.h"
#include "kernels/scalar/tiles.h"
#include "workspace.h"

namespace cuflash {
namespace {

TEST(TileCoordTest, EveryTileIsVisitedOnce) {
  for (const int32_t batch : {1, 2, 5}) {
    for (const int32_t heads : {1, 3, 8}) {
      for (const int32_t blocks : {1, 2, 7}) {
        std::set<std::tuple<int32_t, int32_t, int32_t>> seen;
        const int64_t tiles = num_tiles(batch, heads, blocks);
        EXPECT_EQ(tiles, int64_t{batch} * heads * blocks);
        for (int64_t tile = 0; tile < tiles; ++tile) {
          const TileCoord at = tile_coord(tile, heads, blocks);
          ASSERT_TRUE(at.batch >= 0 && at.batch < batch);
          ASSERT_TRUE(at.head >= 0 && at.head < heads);
          ASSERT_TRUE(at.block >= 0 && at.block < blocks);
          ASSERT_TRUE(seen.emplace(at.batch, at.head, at.block).second) << "tile " << tile << " came before";
        }
      }
    }
  }
}

// Block 0 of every head comes first, then block 1, and within a block the heads of entry 0, then those of entry 1.
TEST(TileCoordTest, ByBlockEveryTileIsVisitedOnceInOrder) {
  for (const int32_t batch : {1, 2, 5}) {
    for (const int32_t heads : {1, 3, 8}) {
      for (const int32_t blocks : {1, 2, 7}) {
        int64_t tile = 0;
        for (int32_t block = 0; block < blocks; ++block) {
          for (int32_t entry = 0; entry < batch; ++entry) {
            for (int32_t head = 0; head < heads; ++head, ++tile) {
              const TileCoord at = tile_coord_by_block(tile, batch, heads);
              ASSERT_EQ(at.batch, entry) << "tile " << tile;
              ASSERT_EQ(at.head, head) << "tile " << tile;
              ASSERT_EQ(at.block, block) << "tile " << tile;
            }
          }
        }
        ASSERT_EQ(tile, num_tiles(batch, heads, blocks));
      }
    }
  }
}

// The same for as many heads at a time as have kTilesInFlight blocks, or for one that has more.
TEST(TileCoordTest, InGroupsEveryTileIsVisitedOnceInOrder) {
  for (const int32_t batch : {1, 5}) {
    for (const int32_t heads : {1, 3, 64}) {
      for (const int32_t blocks : {1, 7, 100, kTilesInFlight, kTilesInFlight + 1}) {
        const int32_t group = std::max(1, kTilesInFlight / blocks);
        int64_t tile = 0;
        for (int32_t first = 0; first < batch * heads; first += group) {
          for (int32_t block = 0; block < blocks; ++block) {
            for (int32_t row = first; row < std::min(first + group, batch * heads); ++row, ++tile) {
              const TileCoord at = tile_coord_in_groups(tile, batch, heads, blocks);
              ASSERT_EQ(at.batch, row / heads) << "tile " << tile;
              ASSERT_EQ(at.head, row % heads) << "tile " << tile;
              ASSERT_EQ(at.block, block) << "tile " << tile;
            }
          }
        }
        ASSERT_EQ(tile, num_tiles(batch, heads, blocks));
      }
    }
  }
}

TEST(TileCoordTest, BlocksOfAHeadAreNeighbours) {
  const TileCoord first = tile_coord(21, 3, 7), last = tile_coord(27, 3, 7);
  EXPECT_EQ(first.head, last.head);
  EXPECT_EQ(first.block, 0);
  EXPECT_EQ(last.block, 6);
}

TEST(TileCoordTest, IndicesAreSixtyFourBits) {
  constexpr int32_t kMax = INT32_MAX;
  EXPECT_EQ(num_tiles(kMax, 1, kMax), int64_t{kMax} * kMax);
  const int64_t last = num_tiles(kMax, 2, 1 << 20) - 1;
  const TileCoord at = tile_coord(last, 2, 1 << 20);
  EXPECT_EQ(at.batch, kMax - 1);
  EXPECT_EQ(at.head, 1);
  EXPECT_EQ(at.block, (1 << 20) - 1);
  const TileCoord by_block = tile_coord_by_block(last, kMax, 2);
  EXPECT_EQ(by_block.batch, kMax - 1);
  EXPECT_EQ(by_block.head, 1);
  EXPECT_EQ(by_block.block, (1 << 20) - 1);
  const TileCoord in_groups = tile_coord_in_groups(last, kMax, 2, 1 << 20);
  EXPECT_EQ(in_groups.batch, kMax - 1);
  EXPECT_EQ(in_groups.head, 1);
  EXPECT_EQ(in_groups.block, (1 << 20) - 1);
}

TEST(CeilDivTest, CoversAndDoesNotOverflow) {
  for (const int32_t divisor : {1, 2, 8, 64}) {
    for (int32_t value = 0; value < 200; ++value) {
      const int32_t blocks = ceil_div(value, divisor);
      EXPECT_GE(blocks * divisor, value);
      EXPECT_LT((blocks - 1) * divisor, value);
    }
  }
  EXPECT_EQ(ceil_div(INT32_MAX, 8), 1 << 28);
  EXPECT_EQ(ceil_div(INT32_MAX, 1), INT32_MAX);
}

struct Piece {
  uintptr_t begin;
  size_t bytes;
};

// Takes pieces of several types and sizes, as a room does.
std::vector<Piece> take_pieces(WorkspaceCarver& carver) {
  std::vector<Piece> pieces;
  for (const int64_t count : {1, 0, 63, 64, 65, 1000}) {
    pieces.push_back(
        {reinterpret_cast<uintptr_t>(carver.take<float>(count)), static_cast<size_t>(count) * sizeof(float)}
    );
    pieces.push_back({reinterpret_cast<uintptr_t>(carver.take<char>(count)), static_cast<size_t>(count)});
    pieces.push_back(
        {reinterpret_cast<uintptr_t>(carver.take<int64_t>(count)), static_cast<size_t>(count) * sizeof(int64_t)}
    );
  }
  return pieces;
}

TEST(WorkspaceCarverTest, PiecesAreAlignedApartAndInside) {
  WorkspaceCarver measure;
  take_pieces(measure);
  alignas(kWorkspaceAlignment) static char memory[1 << 15];
  ASSERT_LE(measure.bytes(), sizeof(memory));
  WorkspaceCarver carver(memory);
  std::vector<Piece> pieces = take_pieces(carver);
  EXPECT_EQ(carver.bytes(), measure.bytes()) << "the size that is asked for is the size that is used";
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  uintptr_t free_from = begin;
  for (const Piece& piece : pieces) {
    EXPECT_EQ(piece.begin % kWorkspaceAlignment, 0u);
    EXPECT_GE(piece.begin, free_from) << "overlaps the piece before";
    free_from = piece.begin + piece.bytes;
  }
  EXPECT_LE(free_from, begin + carver.bytes());
}

TEST(WorkspaceCarverTest, MeasuringYieldsNoPointers) {
  WorkspaceCarver measure;
  EXPECT_EQ(measure.bytes(), 0u);
  EXPECT_EQ(measure.take<float>(3), nullptr);
  EXPECT_EQ(measure.bytes(), kWorkspaceAlignment);
  EXPECT_EQ(measure.take<float>(int64_t{1} << 40), nullptr);
  EXPECT_EQ(measure.bytes(), kWorkspaceAlignment + (size_t{1} << 42));
}

TEST(ScalarTilesTest, CapacitiesRiseToTheLargestHeadDim) {
  int capacity = 0;
  for (const scalar::Tile& tile : scalar::kTiles) {
    EXPECT_GT(tile.head_dim, capacity);
    capacity = tile.head_dim;
    EXPECT_EQ(tile_for(scalar::kTiles, tile.head_dim).head_dim, tile.head_dim);
    EXPECT_LE(tile.block_m * 32, 1024) << "threads of a block";
  }
  EXPECT_EQ(capacity, 256);
}

// Limits per block from the CUDA programming guide's table of compute capabilities; sm_75 has the smallest.
TEST(ScalarTilesTest, SharedMemoryFitsEveryGpu) {
  struct Limit {
    int sm;
    size_t bytes;
  };
  const Limit limits[] = {
      {70, 96 << 10},
      {75, 64 << 10},
      {80, 163 << 10},
      {86, 99 << 10},
      {89, 99 << 10},
      {90, 227 << 10},
      {100, 227 << 10},
      {120, 99 << 10}};
  for (const Limit& limit : limits) {
    for (const scalar::Tile& tile : scalar::kTiles) {
      EXPECT_LE(scalar::shared_bytes(tile, scalar::kFwdRowVectors), limit.bytes) << "sm_" << limit.sm;
      EXPECT_LE(scalar::shared_bytes(tile, scalar::kBwdRowVectors), limit.bytes) << "sm_" << limit.sm;
    }
  }
}

// 32 lanes that read one column of 32 rows, or 32 columns of one row, hit 32 banks.
TEST(ScalarTilesTest, TileReadsHaveNoBankConflict) {
  constexpr int kBanks = 32;
  for (const scalar::Tile& tile : scalar::kTiles) {
    for (const int column : {0, 1, tile.head_dim - 1}) {
      std::set<int> banks;
      for (int lane = 0; lane < kBanks; ++lane) banks.insert((lane * scalar::pitch(tile.head_dim) + column) % kBanks);
      EXPECT_EQ(banks.size(), static_cast<size_t>(kBanks)) << "head_dim " << tile.head_dim;
    }
  }
}

}  // namespace
}  // namespace cuflash
