// SPDX-License-Identifier: MIT
// Shared memory of the room register_tiled: every element of a tile has one owner, and every access costs the wavefronts
// that the tables below say. 2 is the least for 16 bytes a lane, 4 if the 32 addresses differ; 1 for 4 bytes a lane. What
// costs more happens once per tile, or is known: a changed pitch or lane arrangement shows here before it shows in a
// profile.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "kernels/register_tiled/position.h"
#include "wavefronts.h"

namespace cuflash::register_tiled {
namespace {

using test::float_wavefronts;
using test::for_each_row;
using test::matrix_wavefronts;
using test::quad_wavefronts;
using test::warp_places;

TEST(WavefrontsTest, Floats) {
  EXPECT_EQ(float_wavefronts(warp_places(0, [](int) { return 5; })), 1) << "one word for all";
  EXPECT_EQ(float_wavefronts(warp_places(0, [](int t) { return 7 + t; })), 1) << "a row";
  EXPECT_EQ(float_wavefronts(warp_places(0, [](int t) { return 2 * t; })), 2);
  EXPECT_EQ(float_wavefronts(warp_places(0, [](int t) { return 33 * t; })), 1) << "a column of odd pitch";
  EXPECT_EQ(float_wavefronts(warp_places(0, [](int t) { return 32 * t; })), 32) << "a column of full pitch";
}

TEST(WavefrontsTest, Quads) {
  EXPECT_EQ(quad_wavefronts(warp_places(0, [](int) { return 8; })), 2) << "one quad for all, per half";
  EXPECT_EQ(quad_wavefronts(warp_places(0, [](int t) { return 4 * t; })), 4) << "512 bytes";
  EXPECT_EQ(quad_wavefronts(warp_places(0, [](int t) { return 4 * (t / 2); })), 2) << "pairs i, i ^ 1";
  EXPECT_EQ(quad_wavefronts(warp_places(0, [](int t) { return 4 * (t % 2 + t / 4 * 2); })), 2) << "pairs i, i ^ 2";
  EXPECT_EQ(quad_wavefronts(warp_places(0, [](int t) { return 4 * (t % 4 + t / 8 * 4); })), 4) << "pairs i, i ^ 4";
  EXPECT_EQ(quad_wavefronts(warp_places(0, [](int t) { return 4 * (t % 8); })), 4) << "the same in all quarters";
  EXPECT_EQ(quad_wavefronts(warp_places(0, [](int t) { return 4 * std::max(t - 1, 0) / 2 * 2; })), 4) << "pairs apart";
  EXPECT_EQ(quad_wavefronts(warp_places(0, [](int t) { return 128 * (t / 2); })), 16) << "a column of pairs";
  EXPECT_EQ(quad_wavefronts(warp_places(0, [](int t) { return 128 * t; })), 32) << "a column";
}

TEST(WavefrontsTest, Matrices) {
  EXPECT_EQ(matrix_wavefronts(warp_places(0, [](int t) { return 4 * t; })), 4) << "rows one behind the other";
  EXPECT_EQ(matrix_wavefronts(warp_places(0, [](int t) { return 32 * t + (t % 8) * 4; })), 4) << "a diagonal";
  EXPECT_EQ(matrix_wavefronts(warp_places(0, [](int t) { return 8 * t; })), 8) << "every second quad";
  EXPECT_EQ(matrix_wavefronts(warp_places(0, [](int t) { return 32 * t; })), 32) << "a column";
}

// Counts the owners of each element.
class Owners {
 public:
  void add(int row, int col) { ++count_[{row, col}]; }

  void expect_one_each(int rows, int cols, const std::string& what) const {
    EXPECT_EQ(count_.size(), static_cast<size_t>(rows) * static_cast<size_t>(cols)) << what;
    for (const auto& [at, count] : count_) {
      ASSERT_TRUE(at.first >= 0 && at.first < rows && at.second >= 0 && at.second < cols) << what;
      ASSERT_EQ(count, 1) << what << ": " << at.first << ", " << at.second;
    }
  }

 private:
  std::map<std::pair<int, int>, int> count_;
};

TEST(PositionTest, EveryElementOfAForwardTileHasOneOwner) {
  for_each_row<kFwdTiles>([]<int kRow>() {
    constexpr FwdTile kTile = kFwdTiles[kRow];
    Owners scores, outputs;
    for (int thread = 0; thread < kTile.threads(); ++thread) {
      const FwdPosition<kRow> at(thread);
      for (int i = 0; i < kTile.rows; ++i) {
        for (int j = 0; j < kTile.block_n / kTile.lanes; ++j) scores.add(at.row(i), at.key(j));
        for (int j = 0; j < kTile.head_dim / kTile.lanes; ++j) outputs.add(at.row(i), at.dim(j));
      }
    }
    scores.expect_one_each(kTile.block_m, kTile.block_n, "scores of row " + std::to_string(kRow));
    outputs.expect_one_each(kTile.block_m, kTile.head_dim, "o of row " + std::to_string(kRow));
  });
}

TEST(PositionTest, EveryElementOfABackwardTileHasOneOwner) {
  for_each_row<kBwdTiles>([]<int kRow>() {
    using Position = BwdPosition<kRow>;
    constexpr BwdTile kTile = kBwdTiles[kRow];
    Owners scores, gradients, step_gradients;
    for (int thread = 0; thread < kTile.threads; ++thread) {
      const Position at(thread);
      for (int i = 0; i < Position::kScoreRows; ++i) {
        for (int j = 0; j < Position::kScoreCols; ++j) scores.add(at.score_row(i), at.score_col(j));
      }
      for (int i = 0; i < Position::kSumRows; ++i) {
        for (int j = 0; j < Position::kSumDims; ++j) gradients.add(at.sum_row(i), at.sum_dim(j));
      }
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < Position::kStepDims; ++j) step_gradients.add(at.step_row(i), at.step_dim(j));
      }
    }
    const std::string row = " of row " + std::to_string(kRow);
    scores.expect_one_each(kTile.block_own, kTile.block_step, "scores" + row);
    gradients.expect_one_each(kTile.block_own, kTile.head_dim, "gradients" + row);
    step_gradients.expect_one_each(kTile.block_step, kTile.head_dim, "dq" + row);
  });
}

// p is exchanged between the lanes of a warp without a barrier: a warp finds there what it wrote, each weight where it is
// looked for, and no place has two weights.
TEST(PositionTest, AWarpReadsTheWeightsThatItWrote) {
  for_each_row<kFwdTiles>([]<int kRow>() {
    constexpr FwdTile kTile = kFwdTiles[kRow];
    struct Weight {
      int row, key, warp;
      bool operator==(const Weight&) const = default;
    };
    std::map<int, Weight> written;
    for (int thread = 0; thread < kTile.threads(); ++thread) {
      const FwdPosition<kRow> at(thread);
      for (int i = 0; i < kTile.rows; ++i) {
        for (int j = 0; j < kTile.block_n / kTile.lanes; ++j) {
          const int place = at.p_quad(i / 4, at.key(j), at.lane % 2) + i % 4;
          ASSERT_TRUE(place >= 0 && place < kTile.p_floats());
          ASSERT_TRUE(written.emplace(place, Weight{at.row(i), at.key(j), thread / kWarpSize}).second) << place;
        }
      }
    }
    for (int thread = 0; thread < kTile.threads(); ++thread) {
      const FwdPosition<kRow> at(thread);
      for (int i = 0; i < kTile.rows; ++i) {
        for (int key = 0; key < kTile.block_n; ++key) {
          const auto found = written.find(at.p_quad(i / 4, key, key % 2) + i % 4);
          ASSERT_NE(found, written.end());
          ASSERT_EQ(found->second, (Weight{at.row(i), key, thread / kWarpSize})) << "tile row " << kRow;
        }
      }
    }
  });
}

// The most wavefronts that any warp takes for any of the accesses of one pattern.
class Worst {
 public:
  template <class Place>
  void add_quads(int warps, Place&& place) {
    for (int warp = 0; warp < warps; ++warp) most_ = std::max(most_, quad_wavefronts(warp_places(warp, place)));
  }
  template <class Place>
  void add_floats(int warps, Place&& place) {
    for (int warp = 0; warp < warps; ++warp) most_ = std::max(most_, float_wavefronts(warp_places(warp, place)));
  }
  operator int() const { return most_; }

 private:
  int most_ = 0;
};

// A tile that is copied row by row, 16 bytes a thread.
Worst copy_quads(int threads, int head_dim, int pitch) {
  const int quads = head_dim / 4;
  Worst worst;
  worst.add_quads(threads / kWarpSize, [&](int t) { return t / quads * pitch + t % quads * 4; });
  return worst;
}

// The same where the rows are not aligned: each of the 16 bytes' floats for itself.
Worst copy_floats(int threads, int head_dim, int pitch) {
  const int quads = head_dim / 4;
  Worst worst;
  for (int e = 0; e < 4; ++e) {
    worst.add_floats(threads / kWarpSize, [&](int t) { return t / quads * pitch + t % quads * 4 + e; });
  }
  return worst;
}

// What is counted of each row of the forward tiles, per access of a warp.
constexpr const char* kFwdColumns[] = {
    "q",  // of s = q k^T: four rows of an element
    "k",  // four elements of a key
    "p",  // of o += p v: four rows of a key
    "v",  // four elements of a key
    "store p",
    "walk p",  // scores under softcap and ALiBi, 4 bytes at a time
    "copy q",  // transposed, 4 bytes at a time
    "copy k",
    "copy v",
    "copy 4",  // k and v whose rows are not aligned, 4 bytes at a time
    "store o"};
using FwdWavefronts = std::array<int, std::size(kFwdColumns)>;

// clang-format off
constexpr FwdWavefronts kFwdExpected[kFwdTiles.size()] = {
    // q  k  p  v  store  walk  copy q  k  v  4  store o
    {  2, 2, 2, 2, 8,     4,    8,      4, 4, 4, 8},  //  32
    {  2, 2, 2, 2, 8,     4,    8,      4, 4, 4, 8},  //  64
    {  2, 2, 2, 2, 8,     4,    8,      4, 4, 4, 8},  //  64, 64 KB
    {  2, 2, 2, 2, 8,     4,    8,      4, 4, 4, 8},  // 128
    {  2, 2, 2, 2, 8,     4,    8,      4, 4, 4, 8},  // 128, 64 KB
    {  2, 2, 2, 2, 8,     8,    8,      4, 4, 4, 8},  // 256
    {  2, 2, 2, 2, 8,     4,    8,      4, 4, 4, 8},  // 256, 163 KB
};
// clang-format on

template <int kRow>
FwdWavefronts count_forward() {
  using Position = FwdPosition<kRow>;
  constexpr FwdTile kTile = kFwdTiles[kRow];
  constexpr int kWarps = kTile.threads() / kWarpSize;
  constexpr int kKeys = kTile.block_n / kTile.lanes;
  constexpr int kDims = kTile.head_dim / kTile.lanes;
  Worst q, k, p, v, store_p, walk_p, copy_q, store_o;
  for (int i = 0; i < kTile.rows; i += 4) {
    for (int d = 0; d < kTile.head_dim; ++d) {
      q.add_quads(kWarps, [&](int t) { return d * kTile.block_m + Position(t).row(i); });
    }
    for (int key = 0; key < kTile.block_n; ++key) {
      p.add_quads(kWarps, [&](int t) { return Position(t).p_quad(i / 4, key, key % 2); });
    }
    for (int j = 0; j < kKeys; ++j) {
      const auto place = [&](int t) { return Position(t).p_quad(i / 4, Position(t).key(j), Position(t).lane % 2); };
      store_p.add_quads(kWarps, place);
      walk_p.add_floats(kWarps, place);
    }
  }
  for (int j = 0; j < kKeys; ++j) {
    for (int d = 0; d < kTile.head_dim; d += 4) {
      k.add_quads(kWarps, [&](int t) { return Position(t).key(j) * kTile.pitch_k() + d; });
    }
  }
  for (int j = 0; j < kDims; j += 4) {
    for (int key = 0; key < kTile.block_n; ++key) {
      v.add_quads(kWarps, [&](int t) { return key * kTile.head_dim + Position(t).dim(j); });
    }
    for (int i = 0; i < kTile.rows; ++i) {
      store_o.add_quads(kWarps, [&](int t) { return Position(t).row(i) * kTile.head_dim + Position(t).dim(j); });
    }
  }
  copy_q.add_floats(kWarps, [&](int t) {  // 8 elements of 4 rows
    return t % kWarpSize / 4 * kTile.block_m + 4 * (t / kWarpSize) + t % 4;
  });
  const int threads = kTile.threads(), dims = kTile.head_dim;
  return {
      q,
      k,
      p,
      v,
      store_p,
      walk_p,
      copy_q,
      copy_quads(threads, dims, kTile.pitch_k()),
      copy_quads(threads, dims, dims),
      std::max(copy_floats(threads, dims, kTile.pitch_k()), copy_floats(threads, dims, dims)),
      store_o};
}

constexpr const char* kBwdColumns[] = {
    "own",       // of s and dp: four elements of an own row
    "step",      // and of a streamed one
    "store w",   // p and ds, 4 bytes at a time
    "w",         // of dk and dv: four weights of an own row
    "step row",  // four elements of a streamed row
    "ds",        // of dq: the weights of four streamed rows
    "own row",   // four elements of an own row
    "copy",
    "copy 4",  // rows that are not aligned, 4 bytes at a time
    "store sums"};
using BwdWavefronts = std::array<int, std::size(kBwdColumns)>;

// clang-format off
constexpr BwdWavefronts kBwdExpected[kBwdTiles.size()] = {
    // own  step  store w  w  step row  ds  own row  copy  4  store sums
    {  2,   2,    1,       2, 2,        2,  2,       4,    4, 8},  //  32
    {  2,   2,    1,       2, 2,        2,  2,       4,    4, 8},  //  64
    {  2,   2,    1,       2, 2,        2,  2,       4,    4, 8},  //  64, 64 KB
    {  2,   2,    1,       2, 2,        2,  2,       4,    4, 8},  // 128
    {  2,   2,    1,       2, 2,        2,  4,       4,    4, 8},  // 128, 64 KB
    {  2,   2,    1,       2, 2,        2,  4,       4,    4, 8},  // 256
    {  2,   2,    1,       2, 2,        2,  2,       4,    4, 8},  // 256, 163 KB
    {  2,   2,    2,       2, 2,        2,  4,       4,    4, 8},  // 256, 64 KB
};
// clang-format on

template <int kRow>
BwdWavefronts count_backward() {
  using Position = BwdPosition<kRow>;
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kWarps = kTile.warps();
  Worst own, step, store_w, w, step_row, ds, own_row, store_sums;
  for (int d = 0; d < kTile.head_dim; d += 4) {
    for (int i = 0; i < Position::kScoreRows; ++i) {
      own.add_quads(kWarps, [&](int t) { return Position(t).score_row(i) * kTile.pitch() + d; });
    }
    for (int j = 0; j < Position::kScoreCols; ++j) {
      step.add_quads(kWarps, [&](int t) { return Position(t).score_col(j) * kTile.pitch() + d; });
    }
  }
  for (int i = 0; i < Position::kScoreRows; ++i) {
    for (int j = 0; j < Position::kScoreCols; ++j) {
      store_w.add_floats(kWarps, [&](int t) {
        return Position(t).score_row(i) * kTile.pitch_w() + Position(t).score_col(j);
      });
    }
  }
  for (int i = 0; i < Position::kSumRows; ++i) {
    for (int k = 0; k < kTile.block_step; k += 4) {
      w.add_quads(kWarps, [&](int t) { return Position(t).sum_row(i) * kTile.pitch_w() + k; });
    }
  }
  for (int j = 0; j < Position::kSumDims; j += 4) {
    for (int k = 0; k < kTile.block_step; ++k) {
      step_row.add_quads(kWarps, [&](int t) { return k * kTile.pitch() + Position(t).sum_dim(j); });
    }
    for (int i = 0; i < Position::kSumRows; ++i) {
      store_sums.add_quads(kWarps, [&](int t) {
        return Position(t).sum_row(i) * kTile.pitch() + Position(t).sum_dim(j);
      });
    }
  }
  for (int k = 0; k < kTile.block_own; ++k) {
    ds.add_quads(kWarps, [&](int t) { return k * kTile.pitch_w() + Position(t).step_row(0); });
    for (int j = 0; j < Position::kStepDims; j += 4) {
      own_row.add_quads(kWarps, [&](int t) { return k * kTile.pitch() + Position(t).step_dim(j); });
    }
  }
  const int threads = kTile.threads, dims = kTile.head_dim;
  return {
      own,
      step,
      store_w,
      w,
      step_row,
      ds,
      own_row,
      copy_quads(threads, dims, kTile.pitch()),
      copy_floats(threads, dims, kTile.pitch()),
      store_sums};
}

template <size_t kColumns>
void expect_wavefronts(
    const std::array<int, kColumns>& counted,
    const std::array<int, kColumns>& expected,
    const char* const (&columns)[kColumns],
    int row
) {
  for (size_t i = 0; i < kColumns; ++i) EXPECT_EQ(counted[i], expected[i]) << columns[i] << " of tile row " << row;
}

TEST(BankConflictTest, Forward) {
  for_each_row<kFwdTiles>([]<int kRow>() {
    expect_wavefronts(count_forward<kRow>(), kFwdExpected[kRow], kFwdColumns, kRow);
  });
}

TEST(BankConflictTest, Backward) {
  for_each_row<kBwdTiles>([]<int kRow>() {
    expect_wavefronts(count_backward<kRow>(), kBwdExpected[kRow], kBwdColumns, kRow);
  });
}

}  // namespace
}  // namespace cuflash::register_tiled
