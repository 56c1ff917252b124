// SPDX-License-Identifier: MIT
// How kernels that go over query rows once share them out: every element is read by one lane.
#include "kernels/common/row_groups.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace cuflash {
namespace {

struct Bits16 {
  uint16_t bits;
};

template <class T>
void check_groups() {
  for (const bool aligned : {false, true}) {
    for (int32_t head_dim = 1; head_dim <= 256; ++head_dim) {
      SCOPED_TRACE(head_dim);
      const RowGroups groups = row_groups<T>(aligned, head_dim);
      EXPECT_EQ(groups.vectors, aligned && head_dim * sizeof(T) % 16 == 0);
      ASSERT_GE(groups.lanes, 1);
      EXPECT_EQ(32 % groups.lanes, 0) << "groups do not cross warps";
      EXPECT_EQ(groups.groups() * groups.lanes, kRowThreads);
      EXPECT_EQ(groups.rows_per_block(), kRowsAtOnce * groups.groups());
      if (!groups.vectors) {
        EXPECT_EQ(groups.lanes, 32);
        continue;
      }
      const int32_t vectors = head_dim / kVectorSize<T>;
      EXPECT_TRUE(groups.lanes >= vectors || groups.lanes == 32) << "a short row is read at once";
      EXPECT_TRUE(groups.lanes == 1 || groups.lanes / 2 < vectors) << "no more lanes than needed";
    }
  }
}

TEST(RowGroupsTest, Rows16Bit) { check_groups<Bits16>(); }
TEST(RowGroupsTest, Rows32Bit) { check_groups<float>(); }

TEST(RowGroupsTest, KnownByHand) {
  EXPECT_EQ(row_groups<Bits16>(true, 64).lanes, 8);
  EXPECT_EQ(row_groups<Bits16>(true, 96).lanes, 16);
  EXPECT_EQ(row_groups<Bits16>(true, 128).lanes, 16);
  EXPECT_EQ(row_groups<Bits16>(true, 256).lanes, 32);
  EXPECT_EQ(row_groups<float>(true, 256).lanes, 32);
  EXPECT_EQ(row_groups<Bits16>(true, 8).lanes, 1);
}

TEST(RowGroupsTest, BlocksOfACall) {
  Attention a{};
  a.batch = 2;
  a.num_heads = 3;
  a.seqlen_q = 257;
  EXPECT_EQ(num_row_blocks(a, row_groups<Bits16>(true, 64)), 2 * 3 * 3) << "128 rows a block";
  EXPECT_EQ(num_row_blocks(a, row_groups<Bits16>(false, 64)), 2 * 3 * 9) << "32 rows a block";
  a.seqlen_q = 0;
  EXPECT_EQ(num_row_blocks(a, row_groups<Bits16>(true, 64)), 0);
}

}  // namespace
}  // namespace cuflash
