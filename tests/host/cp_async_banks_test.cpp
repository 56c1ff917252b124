// SPDX-License-Identifier: MIT
// Shared memory of the room cp_async: tiles hold every chunk once, load_matrices() gives each lane the elements that the
// fragments of mma want, and no access meets a bank twice: 4 wavefronts for 16 bytes a lane, 1 for 4.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cp_async/swizzle.h"
#include "kernels/cp_async/tiles.h"
#include "wavefronts.h"

namespace cuflash::cp_async {
namespace {

using test::float_wavefronts;
using test::for_each_row;
using test::matrix_wavefronts;
using test::quad_wavefronts;
using test::warp_places;
using test::WarpPlaces;

constexpr int kFloatBytes = 4;

template <int kRowsOfTile, int kHeadDimOfTile, int kThreadsOfBlock>
struct Shape {
  static constexpr int kRows = kRowsOfTile;
  static constexpr int kHeadDim = kHeadDimOfTile;
  static constexpr int kThreads = kThreadsOfBlock;
  using Tile = SwizzledTile<kRows, kHeadDim>;
  static std::string name() { return std::to_string(kRows) + " x " + std::to_string(kHeadDim); }
};

// Calls f.operator()<Shape>() for every tile that is copied from global memory.
template <class F>
void for_each_copied_tile(F&& f) {
  for_each_row<kFwdTiles>([&]<int kRow>() {
    constexpr FwdTile kTile = kFwdTiles[kRow];
    f.template operator()<Shape<kTile.block_m, kTile.head_dim, kTile.threads()>>();
    f.template operator()<Shape<kTile.block_n, kTile.head_dim, kTile.threads()>>();
  });
  for_each_row<kBwdTiles>([&]<int kRow>() {
    constexpr BwdTile kTile = kBwdTiles[kRow];
    f.template operator()<Shape<kTile.block_m, kTile.head_dim, kTile.threads()>>();
    f.template operator()<Shape<kTile.block_n, kTile.head_dim, kTile.threads()>>();
  });
}

// And for the tiles of weights, [key][query], which warps write.
template <class F>
void for_each_weight_tile(F&& f) {
  for_each_row<kBwdTiles>([&]<int kRow>() {
    constexpr BwdTile kTile = kBwdTiles[kRow];
    f.template operator()<Shape<kTile.block_n, kTile.block_m, kTile.threads()>>();
  });
}

template <class F>
void for_each_tile(F&& f) {
  for_each_copied_tile(f);
  for_each_weight_tile(f);
}

struct Element {
  int row;
  int dim;
  bool operator==(const Element&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Element& x) { return out << "(" << x.row << ", " << x.dim << ")"; }

// A tile in which every element is its own name.
template <class S>
std::vector<Element> named_tile() {
  std::vector<Element> tile(static_cast<size_t>(S::kRows * S::kHeadDim), Element{-1, -1});
  for (int row = 0; row < S::kRows; ++row) {
    for (int dim = 0; dim < S::kHeadDim; ++dim) {
      const int byte = S::Tile::offset(row, dim / kChunk * kChunk) + dim % kChunk * 2;
      tile[static_cast<size_t>(byte / 2)] = {row, dim};
    }
  }
  return tile;
}

TEST(SwizzleTest, EveryElementHasItsPlace) {
  for_each_tile([]<class S>() {
    SCOPED_TRACE(S::name());
    std::set<int> places;
    for (int row = 0; row < S::kRows; ++row) {
      for (int dim = 0; dim < S::kHeadDim; dim += kChunk) {
        const int place = S::Tile::offset(row, dim);
        ASSERT_TRUE(place >= 0 && place < S::Tile::kBytes && place % 16 == 0) << row << ", " << dim;
        ASSERT_TRUE(places.insert(place).second) << row << ", " << dim;
      }
    }
    EXPECT_EQ(static_cast<int>(places.size()) * 16, S::Tile::kBytes);
  });
}

// Two elements of each of four registers: what load_matrices() gives a lane (PTX ISA, ldmatrix).
using Registers = std::array<std::array<Element, 2>, 4>;

template <class S, class Addresses>
Registers loaded(const std::vector<Element>& tile, int lane, bool transposed, Addresses&& address) {
  const auto element = [&](int matrix, int row, int column) {
    return tile[address(8 * matrix + row) / 2 + static_cast<size_t>(column)];
  };
  const int first = lane / 4, second = 2 * (lane % 4);
  Registers r;
  for (size_t i = 0; i < r.size(); ++i) {
    for (int e = 0; e < 2; ++e) {
      const int matrix = static_cast<int>(i);
      r[i][static_cast<size_t>(e)] =
          transposed ? element(matrix, second + e, first) : element(matrix, first, second + e);
    }
  }
  return r;
}

// Row and depth of what mma wants of operand a, 16 x 16, in a lane (PTX ISA, mma.m16n8k16).
Element operand_a(int lane, int i, int e) { return {lane / 4 + i % 2 * 8, 2 * (lane % 4) + i / 2 * 8 + e}; }

// Column and depth of two operands b, 16 x 8 each, side by side.
Element operand_b(int lane, int i, int e) { return {lane / 4 + i / 2 * 8, 2 * (lane % 4) + i % 2 * 8 + e}; }

// Compares every block of 16 x 16 of a tile with a fragment. Addresses are made for the block at (0, start) and moved; of
// `members` warps, each takes every members-th block of the columns.
template <class S, class Make, class Wanted>
void expect_fragments(bool transposed, Make&& make, Wanted&& wanted) {
  const std::vector<Element> tile = named_tile<S>();
  for (const int members : {1, 2, 4}) {
    for (int member = 0; member < members; ++member) {
      for (int row = 0; row + 16 <= S::kRows; row += 8) {
        for (int dim = 0; 16 * member + dim < S::kHeadDim; dim += 16 * members) {
          const auto address = [&](int lane) { return make(lane, 16 * member).at(row, dim); };
          for (int lane = 0; lane < kWarpSize; ++lane) {
            const Registers r = loaded<S>(tile, lane, transposed, address);
            for (int i = 0; i < 4; ++i) {
              for (int e = 0; e < 2; ++e) {
                Element expected = wanted(lane, i, e);
                if (transposed) std::swap(expected.row, expected.dim);
                expected = {row + expected.row, 16 * member + dim + expected.dim};
                ASSERT_EQ(r[static_cast<size_t>(i)][static_cast<size_t>(e)], expected)
                    << S::name() << ", lane " << lane << ", register " << i << ", block " << row << ", " << dim;
              }
            }
          }
        }
      }
    }
  }
}

TEST(FragmentTest, DownFirstIsOperandAAndTransposedOperandB) {
  for_each_tile([]<class S>() {
    const auto make = [](int lane, int dim) { return LaneAddress<typename S::Tile>::down_first(lane, 0, 0, dim); };
    expect_fragments<S>(false, make, operand_a);
    expect_fragments<S>(true, make, operand_b);
  });
}

TEST(FragmentTest, AlongFirstIsOperandBAndTransposedOperandA) {
  for_each_tile([]<class S>() {
    const auto make = [](int lane, int dim) { return LaneAddress<typename S::Tile>::along_first(lane, 0, 0, dim); };
    expect_fragments<S>(false, make, operand_b);
    expect_fragments<S>(true, make, operand_a);
  });
}

TEST(BankConflictTest, LoadMatrices) {
  for_each_tile([]<class S>() {
    using Address = LaneAddress<typename S::Tile>;
    for (int row = 0; row + 16 <= S::kRows; row += 8) {
      for (int dim = 0; dim < S::kHeadDim; dim += 16) {
        const auto places = [&](auto&& make) {
          return warp_places(0, [&](int lane) {
            return static_cast<int>(make(lane, 0u, 0, 0).at(row, dim)) / kFloatBytes;
          });
        };
        ASSERT_EQ(matrix_wavefronts(places(Address::down_first)), 4) << S::name() << ", " << row << ", " << dim;
        ASSERT_EQ(matrix_wavefronts(places(Address::along_first)), 4) << S::name() << ", " << row << ", " << dim;
      }
    }
  });
}

TEST(BankConflictTest, CopiesOfATile) {
  for_each_copied_tile([]<class S>() {
    using Chunks = ThreadChunks<typename S::Tile, S::kThreads>;
    const auto place = [](int thread, int first, int piece) {
      const Chunks chunks(thread);
      return S::Tile::offset(chunks.row + first, chunks.dim + piece * S::Tile::kPieceDim);
    };
    std::set<int> copied;
    for (int first = 0; first < S::kRows; first += Chunks::kRowStep) {
      for (int piece = 0; piece < S::kHeadDim / S::Tile::kPieceDim; ++piece) {
        for (int thread = 0; thread < S::kThreads; ++thread) {
          if (Chunks(thread).row + first >= S::kRows) continue;
          EXPECT_TRUE(copied.insert(place(thread, first, piece)).second) << S::name();
          // One register is enough: the steps to a thread's other chunks are constants.
          const int step = first * S::Tile::kRowBytes + piece * S::Tile::kPieceBytes;
          EXPECT_EQ(place(thread, first, piece), place(thread, 0, 0) + step) << S::name();
        }
        for (int warp = 0; warp < S::kThreads / kWarpSize; ++warp) {
          const WarpPlaces places = warp_places(warp, [&](int t) { return place(t, first, piece) / kFloatBytes; });
          EXPECT_EQ(quad_wavefronts(places), 4) << S::name() << ", warp " << warp;
        }
      }
    }
    EXPECT_EQ(static_cast<int>(copied.size()) * 16, S::Tile::kBytes) << S::name();
  });
}

TEST(BankConflictTest, StoresOfWeights) {
  for_each_weight_tile([]<class S>() {
    for (int key = 0; key < S::kRows; key += 8) {
      for (int query = 0; query < S::kHeadDim; query += kChunk) {
        const auto place = [&](int lane) {  // two queries of a key, as the sums of mma lie
          return S::Tile::offset(key + lane / 4, query) / kFloatBytes + lane % 4;
        };
        EXPECT_EQ(float_wavefronts(warp_places(0, place)), 1) << S::name() << ", " << key << ", " << query;
      }
    }
  });
}

}  // namespace
}  // namespace cuflash::cp_async
