// SPDX-License-Identifier: MIT
// The mask in a tile's own coordinates against the definition in the public header: tiles anywhere in small problems,
// and at both ends of problems near 2^31.
#include <gtest/gtest.h>

#include <cstdint>

#include "mask_cases.h"

namespace cuflash::test {
namespace {

// Whether the mask says of the first `rows` x `cols` what it says of each of their pairs.
bool hides_nothing_one_by_one(const TileMask& mask, int32_t rows, int32_t cols) {
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t c = 0; c < cols; ++c) {
      if (!mask.sees(r, c)) return false;
    }
  }
  return true;
}

bool hides_all_one_by_one(const TileMask& mask, int32_t r, int32_t rows, int32_t c, int32_t cols) {
  for (int32_t i = 0; i < rows; ++i) {
    for (int32_t j = 0; j < cols; ++j) {
      if (mask.sees(r + i, c + j)) return false;
    }
  }
  return true;
}

// A tile may reach past the end of its rows, where sees() is nobody's business, and of its columns, where nothing is seen.
constexpr int32_t kTileRows = 4;
constexpr int32_t kTileCols = 5;

void expect_shortcuts_are_exact(const TileMask& mask) {
  for (int32_t rows = 1; rows <= kTileRows; ++rows) {
    for (int32_t cols = 1; cols <= kTileCols; ++cols) {
      ASSERT_EQ(mask.hides_nothing(rows, cols), hides_nothing_one_by_one(mask, rows, cols)) << rows << " x " << cols;
      for (int32_t r = 0; r + rows <= kTileRows; ++r) {
        for (int32_t c = 0; c + cols <= kTileCols; ++c) {
          ASSERT_EQ(mask.hides_all(r, rows, c, cols), hides_all_one_by_one(mask, r, rows, c, cols))
              << rows << " x " << cols << " at " << r << ", " << c;
        }
      }
    }
  }
}

TEST(TileMaskTest, RowsAreQueries) {
  for_each_case([](const Mask& mask, const Attention& a, const Sequence& s) {
    for (int32_t row = 0; row < a.seqlen_q; ++row) {
      for (int32_t key = 0; key < a.seqlen_k; ++key) {
        const TileMask tile = key_mask(a, s, row, key);
        for (int32_t r = 0; r < kTileRows && row + r < a.seqlen_q; ++r) {
          const Range keys = visible_keys(a, s, row + r);
          for (int32_t c = 0; c < kTileCols; ++c) {
            const bool visible = key + c < a.seqlen_k && sees(mask, a.seqlen_q, a.seqlen_k, row + r, key + c);
            ASSERT_EQ(tile.sees(r, c), visible) << "tile at row " << row << ", key " << key << ": " << r << ", " << c;
            ASSERT_EQ(keys.contains(key + c), visible);
          }
        }
        expect_shortcuts_are_exact(tile);
      }
    }
  });
}

TEST(TileMaskTest, RowsAreKeys) {
  for_each_case([](const Mask& mask, const Attention& a, const Sequence& s) {
    for (int32_t key = 0; key < a.seqlen_k; ++key) {
      for (int32_t row = 0; row < a.seqlen_q; ++row) {
        const TileMask tile = query_mask(a, s, key, row);
        for (int32_t r = 0; r < kTileRows && key + r < a.seqlen_k; ++r) {
          const Range rows = visible_rows(a, s, key + r);
          for (int32_t c = 0; c < kTileCols; ++c) {
            const bool visible = row + c < a.seqlen_q && sees(mask, a.seqlen_q, a.seqlen_k, row + c, key + r);
            ASSERT_EQ(tile.sees(r, c), visible) << "tile at key " << key << ", row " << row << ": " << r << ", " << c;
            ASSERT_EQ(rows.contains(row + c), visible);
          }
        }
        expect_shortcuts_are_exact(tile);
      }
    }
  });
}

// Columns past the end are hidden from every row, also from rows past the end of theirs: what such a row sums stays finite.
TEST(TileMaskTest, ColumnsPastTheEndAreHiddenFromAll) {
  for_each_case([](const Mask&, const Attention& a, const Sequence& s) {
    for (int32_t r = 0; r < kTileRows; ++r) {
      for (int32_t c = 0; c < kTileCols; ++c) {
        ASSERT_FALSE(key_mask(a, s, a.seqlen_q - 1, a.seqlen_k).sees(r, c));
        ASSERT_FALSE(query_mask(a, s, a.seqlen_k - 1, a.seqlen_q).sees(r, c));
      }
    }
  });
}

// Distances pass 32 bits here; a tile's own coordinates are clamped to them.
TEST(TileMaskTest, LargestExtents) {
  constexpr int32_t kMax = INT32_MAX;
  constexpr int32_t kTile = 64;
  const auto starts = [](int32_t length) {
    return std::vector<int32_t>{0, length / 2, length > kTile ? length - kTile : 0, length - 1};
  };
  int64_t seen = 0, hidden = 0;
  for (const cuflashAlignment_t alignment : {CUFLASH_ALIGN_BOTTOM_RIGHT, CUFLASH_ALIGN_TOP_LEFT}) {
    for (const int32_t left : {-1, 0, 31, kMax - 1, kMax}) {
      for (const int32_t right : {-1, 0, 31, kMax - 1, kMax}) {
        for (const int32_t seqlen_q : {1, kMax}) {
          for (const int32_t seqlen_k : {1, kMax}) {
            const Mask mask = {CUFLASH_MASK_WINDOW, left, right, alignment};
            const Attention a = attention_of(mask, seqlen_q, seqlen_k);
            const Sequence s = sequence_of(a, 0);
            for (const int32_t row : starts(seqlen_q)) {
              for (const int32_t key : starts(seqlen_k)) {
                const TileMask by_row = key_mask(a, s, row, key), by_key = query_mask(a, s, key, row);
                bool all_seen = true;
                for (int32_t i = 0; i < kTile; ++i) {
                  for (int32_t j = 0; j < kTile; ++j) {
                    const int64_t i_row = int64_t{row} + i, j_key = int64_t{key} + j;
                    const bool visible = sees(mask, seqlen_q, seqlen_k, i_row, j_key);
                    all_seen &= visible && j_key < seqlen_k;
                    if (i_row < seqlen_q) {
                      ASSERT_EQ(by_row.sees(i, j), visible && j_key < seqlen_k) << i_row << " " << j_key;
                    }
                    if (j_key < seqlen_k) {
                      ASSERT_EQ(by_key.sees(j, i), visible && i_row < seqlen_q) << i_row << " " << j_key;
                    }
                    ++(visible ? seen : hidden);
                  }
                }
                ASSERT_EQ(by_row.hides_nothing(kTile, kTile), all_seen) << row << " " << key;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(seen, 100000);
  EXPECT_GT(hidden, 100000);
}

// A window of more than kFar keys on a diagonal further away than that: clamped, and still right.
TEST(TileMaskTest, ClampedDistances) {
  Attention a{};
  a.window_left = a.window_right = kUnlimited;
  const Sequence s = {{0, 0, INT32_MAX}, {0, 0, INT32_MAX}, 0};
  const TileMask unlimited = key_mask(a, s, INT32_MAX - 1, 0);
  EXPECT_EQ(unlimited.begin, -TileMask::kFar);
  EXPECT_EQ(unlimited.end, TileMask::kFar);
  EXPECT_EQ(unlimited.columns, TileMask::kFar);
  EXPECT_TRUE(unlimited.hides_nothing(1 << 20, 1 << 20));

  const Attention diagonal{};  // windows of 0 on both sides
  const TileMask below = key_mask(diagonal, s, INT32_MAX - 1, 0), above = key_mask(diagonal, s, 0, INT32_MAX - 1);
  for (const int32_t r : {0, 1, 1 << 20}) {
    for (const int32_t c : {0, 1, 1 << 20}) {
      EXPECT_FALSE(below.sees(r, c));
      EXPECT_FALSE(above.sees(r, c));
    }
  }
}

}  // namespace
}  // namespace cuflash::test
