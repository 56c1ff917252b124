// SPDX-License-Identifier: MIT
// Shared memory of the room sm90 and the descriptors of its products, against the words of the PTX ISA: what a product
// reads at a descriptor, element by element, is what the tile holds there.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

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

template <int kRow>
class Layout {
 public:
  static constexpr FwdTile kTile = kFwdTiles[kRow];
  static constexpr uint32_t kBase = 1024;

  static void check() {
    SCOPED_TRACE("capacity " + std::to_string(kTile.head_dim));
    check_places<kTile.block_m>();
    check_places<kTile.block_n>();
    for (int group = 0; group < kTile.groups(); ++group) {
      const uint32_t q = kBase + static_cast<uint32_t>(kTile.q_offset());
      const uint64_t rows = describe_rows(q + static_cast<uint32_t>(group * kGroupRows * kRowBytes));
      check_rows<kTile.block_m, kGroupRows>(q, rows, group * kGroupRows);
    }
    for (int stage = 0; stage < kTile.stages; ++stage) {
      const uint32_t k = kBase + static_cast<uint32_t>(kTile.k_offset() + stage * kTile.kv_bytes());
      check_rows<kTile.block_n, kTile.block_n>(k, describe_rows(k), 0);
      check_values(kBase + static_cast<uint32_t>(kTile.v_offset() + stage * kTile.kv_bytes()));
    }
  }

 private:
  // Panels<> and copies agree, and every element has a place of its own.
  template <int kRows>
  static void check_places() {
    std::set<int> places;
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < kTile.head_dim; ++column) {
        const int place = Panels<kRows>::offset(row, column);
        ASSERT_EQ(kBase + static_cast<uint32_t>(place), copied_to<kRows>(kBase, row, column));
        places.insert(place);
      }
    }
    EXPECT_EQ(places.size(), static_cast<size_t>(kRows) * kTile.head_dim);
    EXPECT_EQ(*places.rbegin(), 2 * kRows * kTile.head_dim - 2);
  }

  template <int kRows, int kOperandRows>
  static void check_rows(uint32_t tile, uint64_t operand, int first_row) {
    for (int step = 0; step < kTile.head_dim / kStep; ++step) {
      const Descriptor d(offset_by(operand, Panels<kRows>::along_rows(step)));
      for (int row = 0; row < kOperandRows; ++row) {
        for (int depth = 0; depth < kStep; ++depth) {
          ASSERT_EQ(element_of_rows(d, row, depth), copied_to<kRows>(tile, first_row + row, step * kStep + depth));
        }
      }
    }
  }

  static void check_values(uint32_t tile) {
    const uint64_t operand = describe_columns<kTile.block_n>(tile);
    for (int step = 0; step < kTile.block_n / kStep; ++step) {
      const Descriptor d(offset_by(operand, Panels<kTile.block_n>::down_rows(step)));
      for (int column = 0; column < kTile.head_dim; ++column) {
        for (int depth = 0; depth < kStep; ++depth) {
          ASSERT_EQ(element_of_columns(d, column, depth), copied_to<kTile.block_n>(tile, step * kStep + depth, column));
        }
      }
    }
  }
};

TEST(LayoutTest, ProductsReadWhatCopiesWrite) {
  test::for_each_row<kFwdTiles>([]<int kRow>() { Layout<kRow>::check(); });
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
