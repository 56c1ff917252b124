// SPDX-License-Identifier: MIT
// Tensors that share memory: what proves an overlap is refused, what interleaves is served.
#include "tensor_check.h"

#include <gtest/gtest.h>

#include <string>

namespace cuflash {
namespace {

constexpr uintptr_t kBase = 1 << 20;
constexpr int64_t kElement = 2;  // fp16

Tensor at(int64_t element, int64_t batch_stride, int64_t row_stride, int64_t head_stride) {
  return {
      reinterpret_cast<void*>(kBase + static_cast<uintptr_t>(element * kElement)),
      batch_stride,
      row_stride,
      head_stride};
}

ConstTensor as_input(const Tensor& t) { return {t.data, t.batch_stride, t.row_stride, t.head_stride}; }

TensorCheck new_check(bool pointers_required = true) { return TensorCheck(CUFLASH_R_16F, pointers_required); }

// One input and one output of the same extents.
bool accepted(const Tensor& output, const Tensor& input, const Extents& extents) {
  TensorCheck check = new_check();
  EXPECT_TRUE(check.input("in", as_input(input), extents).ok()) << cuflashGetLastErrorMessage();
  EXPECT_TRUE(check.output("out", output, extents).ok()) << cuflashGetLastErrorMessage();
  const Status status = check.no_overlap();
  if (!status.ok()) {
    EXPECT_EQ(status.code(), CUFLASH_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(cuflashGetLastErrorMessage()).rfind("out (0x", 0), 0u) << cuflashGetLastErrorMessage();
  }
  return status.ok();
}

constexpr Extents kExtents = {2, 5, 4, 8};  // contiguous: 320 elements
constexpr int64_t kCount = 2 * 5 * 4 * 8;

Tensor dense(int64_t element) { return at(element, 160, 32, 8); }

TEST(OverlapTest, NeighboursAreAccepted) {
  EXPECT_TRUE(accepted(dense(kCount), dense(0), kExtents));
  EXPECT_TRUE(accepted(dense(0), dense(kCount), kExtents));
}

TEST(OverlapTest, DenseTensorsMustNotShareARow) {
  EXPECT_FALSE(accepted(dense(0), dense(0), kExtents));
  EXPECT_FALSE(accepted(dense(kCount - 8), dense(0), kExtents));
  EXPECT_FALSE(accepted(dense(0), dense(kCount - 8), kExtents));
  EXPECT_FALSE(accepted(dense(160), dense(0), kExtents));
}

TEST(OverlapTest, ADenseTensorInsideAnother) {
  TensorCheck check = new_check();
  ASSERT_TRUE(check.output("out", dense(0), kExtents).ok());
  ASSERT_TRUE(check.input("in", as_input(at(64, 0, 8, 8)), {1, 1, 1, 8}).ok());
  EXPECT_FALSE(check.no_overlap().ok());
  EXPECT_NE(std::string(cuflashGetLastErrorMessage()).find("overlaps in ("), std::string::npos);
}

// Either end of a tensor with gaps, in a tensor without: rows at 0, 1024, ..., 4096 and a dense output near them.
TEST(OverlapTest, EitherEndOfATensorWithGaps) {
  const Extents rows = {1, 5, 1, 8};
  const auto accepts = [&](int64_t output_element) {
    TensorCheck check = new_check();
    EXPECT_TRUE(check.input("in", as_input(at(0, 0, 1024, 0)), rows).ok());
    EXPECT_TRUE(check.output("out", at(output_element, 0, 8, 0), rows).ok());
    return check.no_overlap().ok();
  };
  EXPECT_FALSE(accepts(-8)) << "holds the first element";
  EXPECT_FALSE(accepts(4 * 1024 - 8)) << "holds the last element";
  EXPECT_TRUE(accepts(512)) << "lies in a gap";
  EXPECT_TRUE(accepts(4 * 1024 + 8)) << "lies behind";
}

TEST(OverlapTest, OrderInMemoryDoesNotMatter) {
  const Tensor bhsd = at(0, 160, 8, 40);  // (batch, heads, rows, dim) in memory
  EXPECT_FALSE(accepted(bhsd, dense(kCount - 8), kExtents));
  EXPECT_FALSE(accepted(dense(kCount - 8), bhsd, kExtents));
  EXPECT_TRUE(accepted(bhsd, dense(kCount), kExtents));
}

// q, k and v of one packed (batch, rows, 3, heads, dim) tensor, and the gradients of one like it.
TEST(OverlapTest, SlicesOfAPackedTensorInterleave) {
  const auto slice = [](int64_t base, int64_t which) { return at(base + which * 32, 5 * 96, 96, 8); };
  TensorCheck check = new_check();
  ASSERT_TRUE(check.input("q", as_input(slice(0, 0)), kExtents).ok());
  ASSERT_TRUE(check.input("k", as_input(slice(0, 1)), kExtents).ok());
  ASSERT_TRUE(check.input("v", as_input(slice(0, 2)), kExtents).ok());
  ASSERT_TRUE(check.output("dq", slice(3 * kCount, 0), kExtents).ok());
  ASSERT_TRUE(check.output("dk", slice(3 * kCount, 1), kExtents).ok());
  ASSERT_TRUE(check.output("dv", slice(3 * kCount, 2), kExtents).ok());
  EXPECT_TRUE(check.no_overlap().ok()) << cuflashGetLastErrorMessage();
}

TEST(OverlapTest, TheSameSliceTwiceIsRefused) {
  const Tensor slice = at(32, 5 * 96, 96, 8);
  EXPECT_FALSE(accepted(slice, slice, kExtents));
}

TEST(OverlapTest, HeadsOfOneTensorInterleave) {
  EXPECT_TRUE(accepted(at(0, 320, 64, 16), at(8, 320, 64, 16), kExtents));
}

TEST(OverlapTest, InputsMayShareEverything) {
  TensorCheck check = new_check();
  ASSERT_TRUE(check.input("k", as_input(dense(0)), kExtents).ok());
  ASSERT_TRUE(check.input("v", as_input(dense(0)), kExtents).ok());
  EXPECT_TRUE(check.no_overlap().ok());
}

TEST(OverlapTest, RowValuesCount) {
  const auto* lse = reinterpret_cast<const float*>(kBase + 64);
  TensorCheck check = new_check();
  ASSERT_TRUE(check.output("out", dense(0), kExtents).ok());
  ASSERT_TRUE(check.row_values("lse", lse, 10).ok());
  EXPECT_FALSE(check.no_overlap().ok());

  TensorCheck apart = new_check();
  ASSERT_TRUE(apart.output("out", dense(0), kExtents).ok());
  ASSERT_TRUE(apart.optional_row_values("lse", reinterpret_cast<const float*>(kBase + kCount * kElement), 10, true).ok()
  );
  EXPECT_TRUE(apart.no_overlap().ok());
}

TEST(OverlapTest, TensorsWithoutElementsOverlapNothing) {
  TensorCheck check = new_check();
  ASSERT_TRUE(check.output("out", dense(0), kExtents).ok());
  ASSERT_TRUE(check.output("empty", dense(0), {2, 0, 4, 8}).ok());
  ASSERT_TRUE(check.optional_row_values("none", reinterpret_cast<const float*>(kBase), 0, true).ok());
  EXPECT_TRUE(check.no_overlap().ok());
}

TEST(StrideTest, OfADimensionOfExtentOneIsIgnored) {
  for (const int64_t stride : {int64_t{0}, int64_t{1}, INT64_MAX}) {
    TensorCheck check = new_check();
    EXPECT_TRUE(check.output("out", at(0, stride, 32, 8), {1, 5, 4, 8}).ok()) << cuflashGetLastErrorMessage();
    EXPECT_TRUE(check.output("out", at(kCount, 160, stride, 8), {2, 1, 4, 8}).ok()) << cuflashGetLastErrorMessage();
    EXPECT_TRUE(check.output("out", at(2 * kCount, 160, 8, stride), {2, 5, 1, 8}).ok()) << cuflashGetLastErrorMessage();
    EXPECT_FALSE(check.unaligned());
  }
}

TEST(StrideTest, InputsMayBeBroadcast) {
  TensorCheck check = new_check();
  EXPECT_TRUE(check.input("k", as_input(at(0, 0, 0, 0)), kExtents).ok());
  EXPECT_TRUE(check.input("v", as_input(at(0, 0, 8, 0)), kExtents).ok());
}

TEST(StrideTest, ElementsOfAnOutputAreDistinct) {
  const auto accepts = [](int64_t batch_stride, int64_t row_stride, int64_t head_stride) {
    TensorCheck check = new_check();
    return check.output("out", at(0, batch_stride, row_stride, head_stride), kExtents).ok();
  };
  EXPECT_TRUE(accepts(160, 32, 8));
  EXPECT_TRUE(accepts(160, 8, 40)) << "(batch, heads, rows, dim) in memory";
  EXPECT_TRUE(accepts(8, 16, 80)) << "batch innermost";
  EXPECT_FALSE(accepts(160, 32, 7));
  EXPECT_FALSE(accepts(160, 31, 8));
  EXPECT_FALSE(accepts(159, 32, 8));
  EXPECT_FALSE(accepts(160, 8, 39));
  EXPECT_FALSE(accepts(160, 8, 8));
  EXPECT_FALSE(accepts(0, 32, 8));
}

TEST(StrideTest, UnalignedMeansSixteenBytes) {
  const auto unaligned = [](const Tensor& tensor) {
    TensorCheck check = new_check();
    EXPECT_TRUE(check.input("in", as_input(tensor), kExtents).ok());
    return check.unaligned();
  };
  EXPECT_FALSE(unaligned(dense(0)));
  EXPECT_FALSE(unaligned(dense(8)));
  EXPECT_FALSE(unaligned(at(0, 0, 0, 0)));
  EXPECT_TRUE(unaligned(dense(1)));
  EXPECT_TRUE(unaligned(dense(4)));
  EXPECT_TRUE(unaligned(at(0, 164, 32, 8)));
  EXPECT_TRUE(unaligned(at(0, 160, 33, 8)));
  EXPECT_TRUE(unaligned(at(0, 160, 32, 12)));
}

// The last byte of a tensor may be the last byte of the address space, and no further.
TEST(StrideTest, TheAddressSpaceEnds) {
  TensorCheck check = new_check();
  const Extents two_rows = {1, 2, 1, 8};
  const int64_t half = INT64_MAX / kElement;
  const auto top = [](uintptr_t bytes_below) { return reinterpret_cast<void*>(UINTPTR_MAX - bytes_below + 1); };
  EXPECT_TRUE(check.input("in", {top(64), 0, 16, 0}, two_rows).ok());
  EXPECT_FALSE(check.input("in", {top(64), 0, 64, 0}, two_rows).ok());
  EXPECT_TRUE(check.input("in", {reinterpret_cast<void*>(kBase), 0, half - 8, 0}, two_rows).ok());
  EXPECT_FALSE(check.input("in", {reinterpret_cast<void*>(kBase), 0, half, 0}, two_rows).ok());
}

TEST(PointerTest, NullIsTakenBySizeQueriesOnly) {
  const ConstTensor null{nullptr, 160, 32, 8};
  TensorCheck run = new_check(), query = new_check(false);
  EXPECT_FALSE(run.input("in", null, kExtents).ok());
  EXPECT_TRUE(run.input("in", null, {2, 0, 4, 8}).ok());
  EXPECT_FALSE(run.row_values("lse", nullptr, 1).ok());
  EXPECT_TRUE(run.row_values("lse", nullptr, 0).ok());
  EXPECT_TRUE(run.optional_row_values("lse", nullptr, 1, true).ok());
  EXPECT_TRUE(query.input("in", null, kExtents).ok());
  EXPECT_TRUE(query.row_values("lse", nullptr, 1).ok());
  EXPECT_FALSE(query.unaligned());
}

}  // namespace
}  // namespace cuflash
