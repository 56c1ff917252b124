// SPDX-License-Identifier: MIT
// Lengths and offsets: what the header says for sane values, and no way out of the tensor for any other.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/common/sequence.h"

namespace cuflash {
namespace {

TEST(EntryRows, DenseEntriesHaveAllRows) {
  for (const int32_t entry : {0, 1, 70000}) {
    const Rows rows = entry_rows(entry, 5, 0, nullptr, nullptr);
    EXPECT_EQ(rows.batch, entry);
    EXPECT_EQ(rows.first, 0);
    EXPECT_EQ(rows.length, 5);
  }
}

TEST(EntryRows, DenseEntriesAreShortenedBySeqused) {
  const int32_t seqused[] = {0, 3, 5, 6, INT32_MAX, -1, INT32_MIN};
  const int32_t expected[] = {0, 3, 5, 5, 5, 0, 0};
  for (int32_t entry = 0; entry < 7; ++entry) {
    EXPECT_EQ(entry_rows(entry, 5, 0, nullptr, seqused).length, expected[entry]) << entry;
  }
}

TEST(EntryRows, PackedEntriesOwnTheirRun) {
  const int32_t cu_seqlens[] = {0, 0, 3, 10, 10, 11};
  const int32_t first[] = {0, 0, 3, 10, 10};
  const int32_t length[] = {0, 3, 7, 0, 1};
  for (int32_t entry = 0; entry < 5; ++entry) {
    const Rows rows = entry_rows(entry, 7, 11, cu_seqlens, nullptr);
    EXPECT_EQ(rows.batch, 0) << "batch_stride means nothing where rows are packed";
    EXPECT_EQ(rows.first, first[entry]);
    EXPECT_EQ(rows.length, length[entry]);
  }
}

TEST(EntryRows, ALongerSequenceIsCutToTheBound) {
  const int32_t cu_seqlens[] = {0, 3, 10};
  EXPECT_EQ(entry_rows(1, 4, 10, cu_seqlens, nullptr).length, 4);
  const int32_t seqused[] = {1, 9};
  EXPECT_EQ(entry_rows(1, 4, 10, cu_seqlens, seqused).length, 4);
  EXPECT_EQ(entry_rows(0, 4, 10, cu_seqlens, seqused).length, 1);
}

// Whatever the device arrays hold, rows lie within [0, total) and lengths within [0, seqlen].
TEST(EntryRows, HostileValuesStayInside) {
  int64_t checked = 0;
  for (const int64_t total : {int64_t{0}, int64_t{1}, int64_t{10}, int64_t{INT32_MAX}}) {
    const auto near = static_cast<int32_t>(total);
    const int32_t hostile[] = {
        INT32_MIN, -1, 0, 1, near / 2, near - 1, near, near == INT32_MAX ? near : near + 1, INT32_MAX};
    for (const int32_t seqlen : {0, 1, 4, 10, INT32_MAX}) {
      for (const int32_t begin : hostile) {
        for (const int32_t end : hostile) {
          for (const int32_t used : hostile) {
            const int32_t cu_seqlens[] = {begin, end};
            for (const int32_t* seqused : {static_cast<const int32_t*>(nullptr), &used}) {
              const Rows rows = entry_rows(0, seqlen, total, cu_seqlens, seqused);
              ASSERT_GE(rows.first, 0);
              ASSERT_GE(rows.length, 0);
              ASSERT_LE(rows.length, seqlen);
              ASSERT_LE(rows.first + rows.length, total);
              ++checked;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(checked, 4 * 5 * 9 * 9 * 9 * 2);
}

// Sane values mean what they say: the clamps change nothing.
TEST(EntryRows, SaneValuesAreExact) {
  for (int32_t total = 0; total <= 6; ++total) {
    for (int32_t begin = 0; begin <= total; ++begin) {
      for (int32_t end = begin; end <= total; ++end) {
        for (int32_t used = 0; used <= end - begin; ++used) {
          const int32_t cu_seqlens[] = {begin, end};
          const Rows rows = entry_rows(0, 6, total, cu_seqlens, &used);
          ASSERT_EQ(rows.length, used);
          ASSERT_EQ(rows.first, begin);
        }
      }
    }
  }
}

TEST(SequenceOf, TheOffsetIsOfTheLengthsInUse) {
  const int32_t cu_q[] = {0, 4, 9}, cu_k[] = {0, 7, 8}, used_k[] = {2, 1};
  Attention a{};
  a.batch = 2;
  a.seqlen_q = a.seqlen_k = 10;
  a.total_q = 9;
  a.total_k = 8;
  a.cu_seqlens_q = cu_q;
  a.cu_seqlens_k = cu_k;
  a.bottom_right = 1;
  EXPECT_EQ(sequence_of(a, 0).offset, 3);
  EXPECT_EQ(sequence_of(a, 1).offset, -4);
  a.seqused_k = used_k;
  EXPECT_EQ(sequence_of(a, 0).offset, -2);
  a.bottom_right = 0;
  EXPECT_EQ(sequence_of(a, 0).offset, 0);
  EXPECT_EQ(sequence_of(a, 1).offset, 0);
}

TEST(RowOffset, IsSixtyFourBits) {
  const ConstTensor tensor{nullptr, int64_t{1} << 40, int64_t{1} << 33, int64_t{1} << 31};
  EXPECT_EQ(row_offset(tensor, Rows{3, 0, 0}, 0, 0), int64_t{3} << 40);
  EXPECT_EQ(row_offset(tensor, Rows{0, 2, 0}, 3, 0), int64_t{5} << 33);
  EXPECT_EQ(row_offset(tensor, Rows{0, 0, 0}, 0, 5), int64_t{5} << 31);
  EXPECT_EQ(row_offset(tensor, Rows{1, 1, 0}, 1, 1), (int64_t{1} << 40) + (int64_t{2} << 33) + (int64_t{1} << 31));
}

// Every (entry, head, row) has an element of its own in lse, and together they fill it.
TEST(LseOffset, IsABijection) {
  const int32_t cu_q[] = {0, 3, 3, 8};
  for (const bool packed : {false, true}) {
    Attention a{};
    a.batch = 3;
    a.num_heads = 4;
    a.seqlen_q = packed ? 8 : 5;
    a.total_q = packed ? 8 : 0;
    a.cu_seqlens_q = packed ? cu_q : nullptr;
    std::vector<int> hits(static_cast<size_t>(lse_size(a)), 0);
    EXPECT_EQ(hits.size(), packed ? 32u : 60u);
    for (int32_t entry = 0; entry < a.batch; ++entry) {
      const Sequence s = sequence_of(a, entry);
      for (int32_t head = 0; head < a.num_heads; ++head) {
        for (int32_t row = 0; row < s.q.length; ++row) ++hits.at(static_cast<size_t>(lse_offset(a, s.q, row, head)));
      }
    }
    EXPECT_EQ(std::count(hits.begin(), hits.end(), 1), static_cast<int64_t>(hits.size())) << "packed " << packed;
  }
}

TEST(LseOffset, IsSixtyFourBits) {
  Attention a{};
  a.batch = a.num_heads = a.seqlen_q = 1 << 20;
  EXPECT_EQ(lse_size(a), int64_t{1} << 60);
  const int32_t last = (1 << 20) - 1;
  EXPECT_EQ(lse_offset(a, Rows{last, 0, 1 << 20}, last, last), (int64_t{1} << 60) - 1);
}

TEST(KeyHead, MapsGroupsInOrder) {
  Attention a{};
  a.num_heads = 6;
  a.num_heads_k = 2;
  const int32_t expected[] = {0, 0, 0, 1, 1, 1};
  for (int32_t head = 0; head < 6; ++head) EXPECT_EQ(key_head(a, head), expected[head]);
  a.num_heads = a.num_heads_k = 0;
  EXPECT_EQ(group_size(a), 0) << "no heads: no division by 0";
}

}  // namespace
}  // namespace cuflash
