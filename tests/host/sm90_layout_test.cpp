// SPDX-License-Identifier: MIT
// Shared memory of the room sm90 and the descriptors of its products, against the words of the PTX ISA: what a product
// reads at a descriptor, element by element, is what the tile holds there.
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "kernels/sm90/dq_tiles.h"
#include "kernels/sm90/swizzle.h"
#include "kernels/sm90/tiles.h"
#include "wavefronts.h"

namespace cuflash::sm90 {
namespace {

// The fields of a descriptor, in bytes.
struct Descriptor {
  uint32_t address;
  uint32_t leading;
  uint32_t stride;

  explicit Descriptor(uint64_t bits)
      : address((bits & 0x3fff) << 4), leading((bits >> 16 & 0x3fff) << 4), stride((bits >> 32 & 0x3fff) << 4) {
    EXPECT_EQ(bits >> 62, 1u) << "swizzle of 128 bytes";
    EXPECT_EQ(bits >> 49 & 7, 0u) << "atoms begin at multiples of 1024 bytes";
  }
};

// The hardware swizzles addresses: bits 4 to 6 are exchanged by bits 7 to 9.
uint32_t swizzled(uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }

// Where element `depth` of row `row` of an operand is, whose rows are contiguous in depth.
uint32_t element_of_rows(const Descriptor& d, int row, int depth) {
  return swizzled(d.address + row / 8 * d.stride + row % 8 * 128 + depth * 2);
}

// The same of an operand whose depth is outermost: `row` is the contiguous side.
uint32_t element_of_columns(const Descriptor& d, int row, int depth) {
  return swizzled(d.address + row / 64 * d.leading + row % 64 * 2 + depth / 8 * d.stride + depth % 8 * 128);
}

// Copies lay a box of 64 elements a row down one row after the other, swizzled; each panel is a box.
template <int kRows>
uint32_t copied_to(uint32_t tile, int row, int column) {
  return swizzled(tile + column / 64 * kRows * 128 + row * 128 + column % 64 * 2);
}

constexpr uint32_t kBase = 1024;

uint32_t at(int offset) { return kBase + static_cast<uint32_t>(offset); }

// Of a tile: Panels<> and copies agree, and every element has a place of its own.
template <int kRows, int kColumns>
void check_places() {
  std::set<int> places;
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      const int place = Panels<kRows>::offset(row, column);
      ASSERT_EQ(at(place), copied_to<kRows>(kBase, row, column));
      places.insert(place);
    }
  }
  EXPECT_EQ(places.size(), static_cast<size_t>(kRows) * kColumns);
  EXPECT_EQ(*places.rbegin(), 2 * kRows * kColumns - 2);
}

// kOperandRows rows of a tile as an operand, from the first one on.
template <int kRows, int kColumns, int kOperandRows>
void check_rows(uint32_t tile, int first_row) {
  const uint64_t operand = describe_rows(tile + static_cast<uint32_t>(first_row * kRowBytes));
  for (int step = 0; step < kColumns / kStep; ++step) {
    const Descriptor d(offset_by(operand, Panels<kRows>::along_rows(step)));
    for (int row = 0; row < kOperandRows; ++row) {
      for (int depth = 0; depth < kStep; ++depth) {
        ASSERT_EQ(element_of_rows(d, row, depth), copied_to<kRows>(tile, first_row + row, step * kStep + depth));
      }
    }
  }
}

// kOperandColumns columns of a tile as an operand, from the first one of a panel on.
template <int kRows, int kOperandColumns>
void check_columns(uint32_t tile, int first_column) {
  const uint64_t operand =
      describe_columns<kRows>(tile + static_cast<uint32_t>(first_column / kPanel * Panels<kRows>::kBytes));
  for (int step = 0; step < kRows / kStep; ++step) {
    const Descriptor d(offset_by(operand, Panels<kRows>::down_rows(step)));
    for (int column = 0; column < kOperandColumns; ++column) {
      for (int depth = 0; depth < kStep; ++depth) {
        ASSERT_EQ(
            element_of_columns(d, column, depth), copied_to<kRows>(tile, step * kStep + depth, first_column + column)
        );
      }
    }
  }
}

TEST(LayoutTest, ProductsReadWhatCopiesWrite) {
  test::for_each_row<kFwdTiles>([]<int kRow>() {
    constexpr FwdTile kTile = kFwdTiles[kRow];
    SCOPED_TRACE("capacity " + std::to_string(kTile.head_dim));
    check_places<kTile.block_m, kTile.head_dim>();
    check_places<kTile.block_n, kTile.head_dim>();
    for (int group = 0; group < kTile.groups(); ++group) {
      check_rows<kTile.block_m, kTile.head_dim, kGroupRows>(at(kTile.q_offset()), group * kGroupRows);
    }
    for (int stage = 0; stage < kTile.stages; ++stage) {
      check_rows<kTile.block_n, kTile.head_dim, kTile.block_n>(at(kTile.k_offset() + stage * kTile.kv_bytes()), 0);
      check_columns<kTile.block_n, kTile.head_dim>(at(kTile.v_offset() + stage * kTile.kv_bytes()), 0);
    }
  });
}

// q and dout are read both ways, k too; of ds, whose rows are keys, columns are rows of dq.
TEST(LayoutTest, ProductsOfTheBackwardPass) {
  test::for_each_row<kBwdTiles>([]<int kRow>() {
    constexpr BwdTile kTile = kBwdTiles[kRow];
    SCOPED_TRACE("capacity " + std::to_string(kTile.head_dim));
    check_places<kTile.block_m, kTile.head_dim>();
    check_places<kTile.block_n, kTile.block_m>();
    for (int key = 0; key < kTile.block_n; key += kGroupRows) {
      check_rows<kTile.block_n, kTile.head_dim, kGroupRows>(at(kTile.k_offset()), key);
      check_rows<kTile.block_n, kTile.head_dim, kGroupRows>(at(kTile.v_offset()), key);
    }
    for (int column = 0; column < kTile.head_dim; column += kPanel) {
      check_columns<kTile.block_n, kPanel>(at(kTile.k_offset()), column);
    }
    static_assert(kTile.dout_offset() == kTile.q_offset() + kTile.q_stages * kTile.rows_bytes());
    for (int stage = 0; stage < kTile.q_stages + kTile.dout_stages; ++stage) {
      const uint32_t rows = at(kTile.q_offset() + stage * kTile.rows_bytes());
      check_rows<kTile.block_m, kTile.head_dim, kTile.block_m>(rows, 0);
      check_columns<kTile.block_m, kTile.head_dim>(rows, 0);
    }
    for (int stage = 0; stage < kTile.ds_stages(); ++stage) {
      for (int column = 0; column < kTile.block_m; column += kPanel) {
        check_columns<kTile.block_n, kPanel>(at(kTile.ds_offset() + stage * kTile.ds_bytes()), column);
      }
    }
  });
}

// Quads of a tile of dq, as threads hold sums: each element has a place of its own.
TEST(LayoutTest, QuadsOfDq) {
  for (const BwdTile& tile : kBwdTiles) {
    std::set<std::pair<int, int>> places;
    for (int i = 0; i < tile.dq_floats() / 4; ++i) {
      const DqPlace place = dq_place(tile.block_m, i);
      const int thread = i % kGroupThreads;
      EXPECT_EQ(place.row % kGroupRows, thread / 32 * 16 + thread % 32 / 4) << "wgmma, sums of a thread";
      EXPECT_EQ(place.column % 8, thread % 4 * 2);
      for (const int row : {place.row, place.row + 8}) {
        for (const int column : {place.column, place.column + 1}) {
          EXPECT_TRUE(row < tile.block_m && column < tile.head_dim);
          places.emplace(row, column);
        }
      }
    }
    EXPECT_EQ(places.size(), static_cast<size_t>(tile.dq_floats()));
  }
}

// Tiles of packed sequences, of any lengths, do not overlap.
TEST(LayoutTest, TilesOfDq) {
  constexpr int kBlockM = 64;
  const int32_t lengths[] = {1, 0, 64, 63, 65, 200, 0, 1, 128};
  const int32_t cu_seqlens[1] = {};  // only whether there are some counts here
  Attention a{};
  a.batch = static_cast<int32_t>(std::size(lengths));
  a.num_heads = 3;
  a.cu_seqlens_q = cu_seqlens;
  a.total_q = std::accumulate(std::begin(lengths), std::end(lengths), int64_t{0});
  const DqTiles tiles = DqTiles::of(a, kBlockM);
  std::set<int64_t> seen;
  int64_t count = 0;
  for (int32_t head = 0; head < a.num_heads; ++head) {
    Rows rows{};
    for (int32_t entry = 0; entry < a.batch; ++entry) {
      for (int32_t block = 0; block < ceil_div(lengths[entry], kBlockM); ++block, ++count) {
        seen.insert(tiles.first(a, rows, entry, head, kBlockM) + block);
      }
      rows.first += lengths[entry];
    }
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
  EXPECT_GE(*seen.begin(), 0);
  EXPECT_LT(*seen.rbegin(), tiles.count());
}

// A warp stages pairs of eight rows at a time, one per lane.
TEST(LayoutTest, StagedPairsMeetEveryBankOnce) {
  for (int column = 0; column < kPanel; column += 8) {
    std::set<int> banks;
    for (int lane = 0; lane < 32; ++lane) {
      banks.insert((Panels<kGroupRows>::offset(lane / 4, column) + lane % 4 * 4) / 4 % 32);
    }
    EXPECT_EQ(banks.size(), 32u) << "column " << column;
  }
}

}  // namespace
}  // namespace cuflash::sm90
