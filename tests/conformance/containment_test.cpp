// SPDX-License-Identifier: MIT
// Where NaN and infinities may show: only in the rows that see them, at whatever place of a tile they stand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "support/call.h"
#include "support/conformance.h"
#include "support/target.h"

namespace cuflash::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A value put into one row of one tensor: the reference, which touches visible elements only, says who must show it.
struct Injection {
  const char* name;
  Op op;
  Buffer buffer;
  float value;
};

constexpr Injection kInjections[] = {
    {"NaN in q", Op::kForward, Buffer::kQ, kNan},
    {"NaN in k", Op::kForward, Buffer::kK, kNan},
    {"NaN in v", Op::kForward, Buffer::kV, kNan},
    {"infinity in q", Op::kForward, Buffer::kQ, kInfinity},
    {"infinity in k", Op::kForward, Buffer::kK, kInfinity},
    {"infinity in v", Op::kForward, Buffer::kV, kInfinity},
    {"-infinity in v", Op::kForward, Buffer::kV, -kInfinity},
    {"NaN in q", Op::kBackward, Buffer::kQ, kNan},
    {"NaN in k", Op::kBackward, Buffer::kK, kNan},
    {"NaN in v", Op::kBackward, Buffer::kV, kNan},
    {"NaN in o", Op::kBackward, Buffer::kO, kNan},
    {"NaN in dout", Op::kBackward, Buffer::kDout, kNan},
    {"NaN in lse", Op::kBackward, Buffer::kLse, kNan},
    {"NaN in dlse", Op::kBackward, Buffer::kDlse, kNan},
    {"infinity in q", Op::kBackward, Buffer::kQ, kInfinity},
    {"infinity in k", Op::kBackward, Buffer::kK, kInfinity},
    {"infinity in v", Op::kBackward, Buffer::kV, kInfinity},
    {"infinity in dout", Op::kBackward, Buffer::kDout, kInfinity},
    {"-infinity in dout", Op::kBackward, Buffer::kDout, -kInfinity},
    {"infinity in dlse", Op::kBackward, Buffer::kDlse, kInfinity}};

const View& view_of(const Geometry& g, Buffer buffer) {
  switch (buffer) {
    case Buffer::kQ: return g.tensor_q;
    case Buffer::kK: return g.tensor_k;
    case Buffer::kV: return g.tensor_v;
    case Buffer::kO: return g.tensor_o;
    default: return g.tensor_dout;
  }
}

// All elements of the row, or one of them: it alone must not spread over the columns of a matrix product.
void inject(const Injection& injection, int32_t row, bool whole_row, Scenario* scenario) {
  constexpr int32_t kEntry = 1, kHead = 1, kElement = 17;
  const Geometry& g = scenario->geometry;
  if (injection.buffer == Buffer::kLse || injection.buffer == Buffer::kDlse) {
    scenario->floats(injection.buffer)[lse_index(scenario->c, g.q, kEntry, kHead, row)] = injection.value;
    return;
  }
  const View& view = view_of(g, injection.buffer);
  const bool is_key = injection.buffer == Buffer::kK || injection.buffer == Buffer::kV;
  const Rows& rows = (is_key ? g.k : g.q).entries[kEntry];
  std::byte* data = scenario->data(view, rows.batch, rows.first + row, kHead);
  for (int32_t e = 0; e < view.dim; ++e) {
    if (whole_row || e == kElement) {
      store(scenario->c.dtype, data + static_cast<size_t>(e) * size_of(scenario->c.dtype), injection.value);
    }
  }
}

Prepared prepare_with(const Injection& injection, int32_t row, bool whole_row, const Case& c) {
  Scenario scenario = make_scenario(c);
  inject(injection, row, whole_row, &scenario);
  if (c.op == Op::kBackward) {
    fill_forward_results(&scenario);  // as the forward pass leaves them: they know of the value
    inject(injection, row, whole_row, &scenario);
  }
  Reference reference = make_reference(scenario);
  return {std::move(scenario), std::move(reference)};
}

// Every injection into each of the rows, under each of the masks. Returns how many calls kernels accepted.
int check_injections(
    const std::string& shape, const std::vector<std::string>& masks, const std::vector<int32_t>& rows
) {
  int cases = 0;
  for (const Injection& injection : kInjections) {
    for (const DType dtype : kAllDTypes) {
      for (const std::string& mask : masks) {
        for (const int32_t row : rows) {
          Case c = case_of("b=2 h=4 hk=2 sq=70 sk=70 lengths_q=60,70 lengths_k=50,70 " + shape + " " + mask);
          c.op = injection.op;
          c.dtype = dtype;
          c.dlse = injection.buffer == Buffer::kDlse;
          const Prepared prepared = prepare_with(injection, row, /*whole_row=*/row != 69, c);
          for (const Kernel& kernel : kernels_of(c.op, target().device())) {
            bool accepted = false;
            const std::string failure = check_kernel(prepared, kernel.name, &accepted);
            EXPECT_EQ(failure, "") << injection.name << ", row " << row << " (the line repeats the case without it)";
            cases += accepted ? 1 : 0;
          }
        }
      }
    }
  }
  std::printf("cases: %d\n", cases);
  testing::Test::RecordProperty("cases", cases);
  return cases;
}

// Rows 0, 33 and 69 of 70: the first of all, one inside of a tile of which it is visible to some rows only, the last.
TEST(ContainmentTest, NanAndInfinityReachOnlyRowsThatSeeThem) {
  const std::vector<std::string> masks = {"mask=causal", "mask=window wl=10 wr=4", "mask=causal packed_q=1 packed_k=1"};
  EXPECT_GE(check_injections("d=32", masks, {0, 33, 69}), 540);
}

// Where kernels may share out a tile's work in other ways. Under softcap an infinite score is as good as another, but what a
// kernel fills a tile up with makes NaN of infinity.
TEST(ContainmentTest, NanAndInfinityStayAtWideHeads) {
  for (const std::string shape : {"d=128", "d=136"}) {
    EXPECT_GE(check_injections(shape, {"mask=causal", "mask=none softcap=10"}, {33}), 120);
  }
}

// Scores of -inf: q is positive, and -inf stands in one key row or in all of them. Their weights are 0, which shows in
// o and lse; dq is NaN by 0 * inf where a row sees such a key.
void expect_right_with_infinite_keys(const std::string& shape, const std::vector<int32_t>& keys, double lse_of_last) {
  for (const Op op : {Op::kForward, Op::kBackward}) {
    for (const DType dtype : kAllDTypes) {
      Case c = case_of("h=2 hk=1 sk=70 d=32 dist=positive " + shape);
      c.op = op;
      c.dtype = dtype;
      Scenario scenario = make_scenario(c);
      for (const int32_t key : keys) {
        std::byte* row = scenario.data(scenario.geometry.tensor_k, 0, key, 0);
        for (int32_t e = 0; e < c.head_dim; ++e) {
          store(dtype, row + static_cast<size_t>(e) * size_of(dtype), -kInfinity);
        }
      }
      if (op == Op::kBackward) fill_forward_results(&scenario);
      const Prepared prepared{scenario, make_reference(scenario)};
      if (op == Op::kForward) {
        for (const double o : prepared.reference.o.value) ASSERT_TRUE(std::isfinite(o));
        for (const double allowed : prepared.reference.o.allowed) ASSERT_TRUE(std::isfinite(allowed));
        const double lse = prepared.reference.lse.value.back();
        ASSERT_TRUE(std::isinf(lse_of_last) ? lse == lse_of_last : std::isfinite(lse)) << lse;
      }
      bool served = false;
      for (const Kernel& kernel : kernels_of(op, target().device())) {
        bool accepted = false;
        EXPECT_EQ(check_kernel(prepared, kernel.name, &accepted), "") << "with -inf in " << keys.size() << " keys";
        served |= accepted;
      }
      EXPECT_TRUE(served) << to_string(c);
    }
  }
}

TEST(ContainmentTest, AKeyOfMinusInfinityHasNoWeight) {
  for (const int32_t key : {0, 33, 69}) {
    expect_right_with_infinite_keys("sq=70 mask=none", {key}, 0);
    expect_right_with_infinite_keys("sq=70 mask=window wl=10 wr=4", {key}, 0);
  }
}

// The first row of the causal case sees one key, of -inf: it is empty, the others are not.
TEST(ContainmentTest, ARowOfOnlyMinusInfinityIsEmpty) {
  std::vector<int32_t> all(70);
  std::iota(all.begin(), all.end(), 0);
  expect_right_with_infinite_keys("sq=9 mask=none", all, -kInfinity);
  expect_right_with_infinite_keys("sq=70 mask=causal", all, -kInfinity);
  expect_right_with_infinite_keys("sq=70 mask=causal", {0}, 0);
}

}  // namespace
}  // namespace cuflash::test
