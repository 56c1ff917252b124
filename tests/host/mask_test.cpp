// SPDX-License-Identifier: MIT
// Masks against the definition in the public header, exhaustively for small lengths.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "mask_cases.h"

namespace cuflash::test {
namespace {

void expect_range(const Range& range, int32_t length, const char* what) {
  ASSERT_GE(range.begin, 0) << what;
  ASSERT_LE(range.begin, range.end) << what;
  ASSERT_LE(range.end, length) << what;
}

TEST(MaskTest, KeysOfARow) {
  for_each_case([](const Mask& mask, const Attention& a, const Sequence& s) {
    for (int32_t row = 0; row < a.seqlen_q; ++row) {
      const Range keys = visible_keys(a, s, row);
      expect_range(keys, a.seqlen_k, "keys");
      for (int32_t key = 0; key < a.seqlen_k; ++key) {
        ASSERT_EQ(keys.contains(key), sees(mask, a.seqlen_q, a.seqlen_k, row, key)) << "row " << row << ", key " << key;
      }
    }
  });
}

TEST(MaskTest, RowsOfAKey) {
  for_each_case([](const Mask& mask, const Attention& a, const Sequence& s) {
    for (int32_t key = 0; key < a.seqlen_k; ++key) {
      const Range rows = visible_rows(a, s, key);
      expect_range(rows, a.seqlen_q, "rows");
      for (int32_t row = 0; row < a.seqlen_q; ++row) {
        ASSERT_EQ(rows.contains(row), sees(mask, a.seqlen_q, a.seqlen_k, row, key)) << "row " << row << ", key " << key;
      }
    }
  });
}

// What a tile of rows sees is exactly the union of what its rows see: nothing is missed, nothing is read for nothing.
TEST(MaskTest, KeysOfATileOfRows) {
  for_each_case([](const Mask& mask, const Attention& a, const Sequence& s) {
    for (int32_t begin = 0; begin < a.seqlen_q; ++begin) {
      for (int32_t end = begin + 1; end <= a.seqlen_q; ++end) {
        const Range keys = visible_keys_of_rows(a, s, begin, end);
        expect_range(keys, a.seqlen_k, "keys");
        for (int32_t key = 0; key < a.seqlen_k; ++key) {
          bool seen = false;
          for (int32_t row = begin; row < end; ++row) seen |= sees(mask, a.seqlen_q, a.seqlen_k, row, key);
          ASSERT_EQ(keys.contains(key), seen) << "rows " << begin << " to " << end << ", key " << key;
        }
      }
    }
  });
}

TEST(MaskTest, RowsOfATileOfKeys) {
  for_each_case([](const Mask& mask, const Attention& a, const Sequence& s) {
    for (int32_t begin = 0; begin < a.seqlen_k; ++begin) {
      for (int32_t end = begin + 1; end <= a.seqlen_k; ++end) {
        const Range rows = visible_rows_of_keys(a, s, begin, end);
        expect_range(rows, a.seqlen_q, "rows");
        for (int32_t row = 0; row < a.seqlen_q; ++row) {
          bool seen = false;
          for (int32_t key = begin; key < end; ++key) seen |= sees(mask, a.seqlen_q, a.seqlen_k, row, key);
          ASSERT_EQ(rows.contains(row), seen) << "keys " << begin << " to " << end << ", row " << row;
        }
      }
    }
  });
}

std::string picture(const Mask& mask, int32_t seqlen_q, int32_t seqlen_k) {
  const Attention a = attention_of(mask, seqlen_q, seqlen_k);
  std::string text;
  for (int32_t row = 0; row < seqlen_q; ++row) {
    const Range keys = visible_keys(a, sequence_of(a, 0), row);
    for (int32_t key = 0; key < seqlen_k; ++key) text += keys.contains(key) ? '1' : '0';
    text += row + 1 < seqlen_q ? " " : "";
  }
  return text;
}

// The pictures of the public header.
TEST(MaskTest, PicturesOfBothAlignments) {
  const Mask top_left = {CUFLASH_MASK_CAUSAL, 0, 0, CUFLASH_ALIGN_TOP_LEFT};
  const Mask bottom_right = {CUFLASH_MASK_CAUSAL, 0, 0, CUFLASH_ALIGN_BOTTOM_RIGHT};
  EXPECT_EQ(picture(top_left, 2, 5), "10000 11000");
  EXPECT_EQ(picture(bottom_right, 2, 5), "11110 11111");
  EXPECT_EQ(picture(top_left, 5, 2), "10 11 11 11 11");
  EXPECT_EQ(picture(bottom_right, 5, 2), "00 00 00 10 11");
}

bool same(const Attention& x, const Attention& y) {
  return x.window_left == y.window_left && x.window_right == y.window_right && x.bottom_right == y.bottom_right;
}

TEST(MaskTest, EqualMasksBecomeOne) {
  const auto window = [](int32_t left, int32_t right) {
    return attention_of({CUFLASH_MASK_WINDOW, left, right, CUFLASH_ALIGN_BOTTOM_RIGHT}, 100, 50);
  };
  const Attention causal = attention_of({CUFLASH_MASK_CAUSAL, 0, 0, CUFLASH_ALIGN_BOTTOM_RIGHT}, 100, 50);
  const Attention none = attention_of({CUFLASH_MASK_NONE, 0, 0, CUFLASH_ALIGN_BOTTOM_RIGHT}, 100, 50);
  EXPECT_TRUE(same(window(-1, 0), causal));
  EXPECT_TRUE(same(window(150, 0), causal));
  EXPECT_TRUE(same(window(-1, -1), none));
  EXPECT_TRUE(same(window(150, 150), none));
  EXPECT_TRUE(same(window(INT32_MAX, INT32_MAX), none));
  EXPECT_FALSE(same(window(-1, 1), causal));
  EXPECT_FALSE(same(window(49, 0), causal));
}

// Sums of the largest lengths and windows do not overflow.
TEST(MaskTest, LargestExtents) {
  constexpr int32_t kMax = INT32_MAX;
  for (const cuflashAlignment_t alignment : {CUFLASH_ALIGN_BOTTOM_RIGHT, CUFLASH_ALIGN_TOP_LEFT}) {
    for (const int32_t window : {-1, 0, 1, kMax - 1, kMax}) {
      for (const int32_t seqlen_q : {1, kMax}) {
        for (const int32_t seqlen_k : {1, kMax}) {
          const Mask mask = {CUFLASH_MASK_WINDOW, window, window, alignment};
          const Attention a = attention_of(mask, seqlen_q, seqlen_k);
          const Sequence s = sequence_of(a, 0);
          for (const int32_t row : {0, seqlen_q / 2, seqlen_q - 1}) {
            const Range keys = visible_keys(a, s, row);
            expect_range(keys, seqlen_k, "keys");
            for (const int32_t key : {0, seqlen_k / 2, seqlen_k - 1}) {
              const bool visible = sees(mask, seqlen_q, seqlen_k, row, key);
              EXPECT_EQ(keys.contains(key), visible) << row << " " << key;
              EXPECT_EQ(visible_rows(a, s, key).contains(row), visible) << row << " " << key;
            }
          }
        }
      }
    }
  }
}

TEST(MaskTest, MasksPairsUnlessBothSidesAreUnlimited) {
  Attention a{};
  a.window_left = a.window_right = kUnlimited;
  EXPECT_FALSE(masks_pairs(a));
  a.window_right = 0;
  EXPECT_TRUE(masks_pairs(a));
  a.window_left = 5;
  EXPECT_TRUE(masks_pairs(a));
  a.window_right = kUnlimited;
  EXPECT_TRUE(masks_pairs(a));
}

}  // namespace
}  // namespace cuflash::test
