// SPDX-License-Identifier: MIT
// The gradients of the host kernel against differences of its own forward results, for every element of q, k and v.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <ostream>
#include <vector>

#include "host_attention.h"
#include "support/random.h"

namespace cuflash::test {
namespace {

// The derivative at 0 from values at -2h, -h, h and 2h, exact for polynomials up to the fourth degree.
constexpr float kStep = 0x1p-5f;
struct Sample {
  float at;
  double weight;
};
constexpr Sample kStencil[] = {
    {-2.0f * kStep, 1.0 / (12.0 * kStep)},
    {-kStep, -8.0 / (12.0 * kStep)},
    {kStep, 8.0 / (12.0 * kStep)},
    {2.0f * kStep, -1.0 / (12.0 * kStep)}};

// Inputs are multiples of 2^-8 in [-1, 1], so that moving one by a step is exact in fp32. What is left:
//   truncation  h^4 / 30 times the fifth derivative of the loss: scores move by at most 1 per unit, softcap of 0.5
//               doubles that, so it is below about 2^5 times the size of the loss: 2^-20 of that
//   rounding    o and lse are rounded to fp32, 2^-24 of their size; the stencil's weights sum to 1.5 / h: 2^-18
// The allowance covers both with the size of the loss being the sum of its terms' magnitudes.
constexpr double kAllowance = 0x1p-17;

struct GradientCase {
  const char* name;
  cuflashForwardParams_t shape;
};

void PrintTo(const GradientCase& c, std::ostream* out) { *out << c.name; }

cuflashForwardParams_t basic_shape() {
  cuflashForwardParams_t p = {};
  p.dtype = CUFLASH_R_32F;
  p.batch = 1;
  p.num_heads = p.num_heads_k = 2;
  p.seqlen_q = 5;
  p.seqlen_k = 6;
  p.head_dim = 4;
  return p;
}

template <class Change>
GradientCase with(const char* name, const Change& change) {
  GradientCase c{name, basic_shape()};
  change(c.shape);
  return c;
}

constexpr std::array<float, 4> kSlopes = {0.5f, 0.0f, 0.25f, 1.0f};
constexpr std::array<int32_t, 4> kCuSeqlens = {0, 4, 4, 9};
constexpr std::array<int32_t, 3> kUsed = {2, 1, 5};

const GradientCase kCases[] = {
    with("plain", [](auto&) {}),
    with("causal", [](auto& p) { p.mask = CUFLASH_MASK_CAUSAL; }),
    with(
        "causal_top_left",
        [](auto& p) {
          p.mask = CUFLASH_MASK_CAUSAL;
          p.alignment = CUFLASH_ALIGN_TOP_LEFT;
        }
    ),
    with(
        "hidden_rows",
        [](auto& p) {
          p.mask = CUFLASH_MASK_CAUSAL;
          p.seqlen_k = 3;
        }
    ),
    with(
        "window",
        [](auto& p) {
          p.mask = CUFLASH_MASK_WINDOW;
          p.window_left = 2;
          p.window_right = 1;
        }
    ),
    with("gqa", [](auto& p) { p.num_heads = 4; }),
    with("mqa", [](auto& p) { p.num_heads_k = 1; }),
    with("softcap", [](auto& p) { p.softcap = 0.5f; }),
    with("alibi", [](auto& p) { p.alibi_slopes = kSlopes.data(); }),
    with("scale_negative", [](auto& p) { p.softmax_scale = -0.5f; }),
    with("head_dim_v", [](auto& p) { p.head_dim_v = 3; }),
    with("several_blocks", [](auto& p) { p.seqlen_q = p.seqlen_k = 37; }),
    with(
        "varlen_everything",
        [](auto& p) {
          p.batch = 3;
          p.num_heads = 4;
          p.cu_seqlens_q = p.cu_seqlens_k = kCuSeqlens.data();
          p.total_q = p.total_k = 9;
          p.seqused_k = kUsed.data();
          p.mask = CUFLASH_MASK_WINDOW;
          p.window_left = 3;
          p.window_right = 1;
          p.softcap = 0.5f;
          p.softmax_scale = -0.5f;
          p.alibi_slopes = kSlopes.data();
        }
    ),
};

// One term of the loss per element of o and lse, so that terms that do not move cancel exactly.
std::vector<double> loss_terms(const HostAttention& x) {
  std::vector<double> terms;
  for (size_t i = 0; i < x.count(x.o); ++i)
    terms.push_back(x.is_poison(x.o, i) ? 0.0 : x.get(x.o, i) * x.get(x.dout, i));
  for (size_t i = 0; i < x.lse.size(); ++i) {
    const bool counts = std::isfinite(x.lse[i]) && x.lse[i] != HostAttention::poison_value();
    terms.push_back(counts ? static_cast<double>(x.lse[i]) * x.dlse[i] : 0.0);
  }
  return terms;
}

class GradientTest : public testing::TestWithParam<GradientCase> {
 protected:
  void SetUp() override {
    Random random(11);
    for (HostAttention::Bytes* tensor : {&x_.q, &x_.k, &x_.v, &x_.dout}) {
      for (size_t i = 0; i < x_.count(*tensor); ++i)
        x_.set(*tensor, i, static_cast<float>(random.between(-256, 256)) * 0x1p-8f);
    }
    x_.dlse.resize(x_.lse.size());
    for (float& value : x_.dlse) value = static_cast<float>(random.between(-256, 256)) * 0x1p-8f;
    x_.forward();
    x_.backward();
    for (const double term : loss_terms(x_)) size_ += std::abs(term);
  }

  double difference(HostAttention::Bytes HostAttention::*tensor, size_t index) const {
    HostAttention moved = x_;
    double derivative = 0.0;
    std::vector<double> sums(loss_terms(x_).size(), 0.0);
    for (const Sample& sample : kStencil) {
      moved.set(moved.*tensor, index, static_cast<float>(x_.get(x_.*tensor, index)) + sample.at);
      moved.forward();
      const std::vector<double> terms = loss_terms(moved);
      for (size_t i = 0; i < terms.size(); ++i) sums[i] += sample.weight * terms[i];
    }
    for (const double sum : sums) derivative += sum;
    return derivative;
  }

  void check(HostAttention::Bytes HostAttention::*tensor, HostAttention::Bytes HostAttention::*gradient) const {
    for (size_t i = 0; i < x_.count(x_.*tensor); ++i) {
      const double expected = x_.is_poison(x_.*gradient, i) ? 0.0 : x_.get(x_.*gradient, i);
      ASSERT_NEAR(difference(tensor, i), expected, kAllowance * size_) << "element " << i;
    }
  }

  HostAttention x_{GetParam().shape};
  double size_ = 0.0;
};

TEST_P(GradientTest, Dq) { check(&HostAttention::q, &HostAttention::dq); }
TEST_P(GradientTest, Dk) { check(&HostAttention::k, &HostAttention::dk); }
TEST_P(GradientTest, Dv) { check(&HostAttention::v, &HostAttention::dv); }

INSTANTIATE_TEST_SUITE_P(
    Cases,
    GradientTest,
    testing::ValuesIn(kCases),
    [](const testing::TestParamInfo<GradientCase>& case_info) { return std::string(case_info.param.name); }
);

}  // namespace
}  // namespace cuflash::test
