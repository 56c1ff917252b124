// SPDX-License-Identifier: MIT
// The host kernel against the golden vectors: every output is the exact result, rounded once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "golden/golden_file.h"
#include "host_attention.h"

namespace cuflash::test {

static void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.name; }

namespace {

const std::vector<GoldenCase>& golden_cases() {
  static const std::vector<GoldenCase> cases = read_golden_file(CUFLASH_GOLDEN_DIR "/attention.bin");
  return cases;
}

cuflashForwardParams_t shape_of(const GoldenCase& c) {
  cuflashForwardParams_t p = {};
  p.dtype = c.integer("dtype");
  p.batch = c.integer("batch");
  p.num_heads = c.integer("num_heads");
  p.num_heads_k = c.integer("num_heads_k");
  p.seqlen_q = c.integer("seqlen_q");
  p.seqlen_k = c.integer("seqlen_k");
  p.head_dim = c.integer("head_dim");
  p.head_dim_v = c.integer("head_dim_v");
  p.mask = c.integer("mask");
  p.alignment = c.integer("alignment");
  p.window_left = c.integer("window_left");
  p.window_right = c.integer("window_right");
  p.softmax_scale = c.real("softmax_scale");
  p.softcap = c.real("softcap");
  p.total_q = c.integer("total_q");
  p.total_k = c.integer("total_k");
  p.cu_seqlens_q = c.optional_elements<int32_t>("cu_seqlens_q");
  p.cu_seqlens_k = c.optional_elements<int32_t>("cu_seqlens_k");
  p.seqused_q = c.optional_elements<int32_t>("seqused_q");
  p.seqused_k = c.optional_elements<int32_t>("seqused_k");
  p.alibi_slopes = c.optional_elements<float>("alibi_slopes");
  p.alibi_batch_stride = c.integer("alibi_batch_stride");
  return p;
}

void fill(HostAttention::Bytes* tensor, const GoldenCase& c, const char* name) {
  const auto bytes = c.bytes(name);
  ASSERT_EQ(bytes.size(), tensor->size()) << name;
  std::copy(bytes.begin(), bytes.end(), tensor->begin());
}

// Rounding the exact result may be off by half a unit in the last place; sums in another order add next to nothing.
double tolerance(DType dtype, double exact, double largest) {
  const double half_unit = exact == 0.0 ? 0.0 : std::exp2(std::ilogb(exact)) * unit_roundoff(dtype);
  return std::max(half_unit, half_smallest_subnormal(dtype)) + 1e-11 * largest;
}

double largest_of(std::span<const double> values) {
  double largest = 0.0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// NaN in the golden results stands for "not written".
void expect_tensor(const HostAttention& x, const HostAttention::Bytes& actual, const GoldenCase& c, const char* name) {
  const auto exact = c.elements<double>(name);
  const double largest = largest_of(exact);
  ASSERT_EQ(x.count(actual), exact.size()) << name;
  for (size_t i = 0; i < exact.size(); ++i) {
    if (std::isnan(exact[i])) {
      ASSERT_TRUE(x.is_poison(actual, i)) << name << "[" << i << "] was written";
    } else {
      ASSERT_NEAR(x.get(actual, i), exact[i], tolerance(x.dtype(), exact[i], largest)) << name << "[" << i << "]";
    }
  }
}

void expect_lse(const HostAttention& x, const GoldenCase& c) {
  const auto exact = c.elements<double>("lse");
  const double largest = largest_of(exact);
  ASSERT_EQ(x.lse.size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    if (std::isnan(exact[i])) {
      ASSERT_EQ(x.lse[i], HostAttention::poison_value()) << "lse[" << i << "] was written";
    } else if (std::isinf(exact[i])) {
      ASSERT_EQ(x.lse[i], exact[i]) << "lse[" << i << "]";
    } else {
      ASSERT_NEAR(x.lse[i], exact[i], tolerance(DType::kFp32, exact[i], largest)) << "lse[" << i << "]";
    }
  }
}

class GoldenTest : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    fill(&x_.q, GetParam(), "q");
    fill(&x_.k, GetParam(), "k");
    fill(&x_.v, GetParam(), "v");
    fill(&x_.dout, GetParam(), "dout");
  }

  HostAttention x_{shape_of(GetParam())};
};

TEST_P(GoldenTest, Forward) {
  x_.forward();
  expect_tensor(x_, x_.o, GetParam(), "o");
  expect_lse(x_, GetParam());
}

TEST_P(GoldenTest, Backward) {
  fill(&x_.o, GetParam(), "o_in");
  const auto lse = GetParam().elements<float>("lse_in");
  x_.lse.assign(lse.begin(), lse.end());
  if (GetParam().has("dlse")) {
    const auto dlse = GetParam().elements<float>("dlse");
    x_.dlse.assign(dlse.begin(), dlse.end());
  }
  x_.backward();
  expect_tensor(x_, x_.dq, GetParam(), "dq");
  expect_tensor(x_, x_.dk, GetParam(), "dk");
  expect_tensor(x_, x_.dv, GetParam(), "dv");
}

INSTANTIATE_TEST_SUITE_P(
    Cases,
    GoldenTest,
    testing::ValuesIn(golden_cases()),
    [](const testing::TestParamInfo<GoldenCase>& case_info) { return case_info.param.name; }
);

TEST(GoldenFile, HoldsEnoughCases) { EXPECT_GE(golden_cases().size(), 60u); }

}  // namespace
}  // namespace cuflash::test
