// SPDX-License-Identifier: MIT
#include "kernels/common/alignment.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace cuflash {
namespace {

ConstTensor tensor(uintptr_t address, int64_t batch_stride, int64_t row_stride, int64_t head_stride) {
  return {reinterpret_cast<const void*>(address), batch_stride, row_stride, head_stride};
}

// One extent at a time is off by one element: that alone decides.
TEST(AlignmentTest, TheAddressAndEveryStrideCount) {
  for (const int64_t element_bytes : {2, 4}) {
    const int64_t vector = 16 / element_bytes;
    const auto address = uintptr_t{0x7f0000001000};
    EXPECT_TRUE(rows_are_aligned(tensor(address, 64 * vector, 8 * vector, vector), element_bytes));
    for (int64_t off = 1; off < vector; ++off) {
      EXPECT_FALSE(rows_are_aligned(
          tensor(address + static_cast<uintptr_t>(off * element_bytes), 64 * vector, 8 * vector, vector), element_bytes
      ));
      EXPECT_FALSE(rows_are_aligned(tensor(address, 64 * vector + off, 8 * vector, vector), element_bytes));
      EXPECT_FALSE(rows_are_aligned(tensor(address, 64 * vector, 8 * vector + off, vector), element_bytes));
      EXPECT_FALSE(rows_are_aligned(tensor(address, 64 * vector, 8 * vector, vector + off), element_bytes));
    }
  }
}

// Strides that no step takes are 0, as of packed rows or one row for all.
TEST(AlignmentTest, ZeroIsAMultiple) {
  EXPECT_TRUE(rows_are_aligned(tensor(0x1000, 0, 0, 0), 4));
  EXPECT_TRUE(rows_are_aligned(tensor(0, 0, 8, 8), 2));
}

TEST(AlignmentTest, HugeStridesDoNotOverflow) {
  constexpr int64_t kHuge = int64_t{1} << 60;
  EXPECT_TRUE(rows_are_aligned(tensor(0x1000, kHuge, kHuge, kHuge), 4));
  EXPECT_FALSE(rows_are_aligned(tensor(0x1000, kHuge + 1, kHuge, kHuge), 4));
}

}  // namespace
}  // namespace cuflash
