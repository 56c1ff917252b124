// SPDX-License-Identifier: MIT
// From q . k to the score: scale, softcap, ALiBi, and the derivative that the backward pass multiplies with.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/common/score.h"

namespace cuflash {
namespace {

constexpr float kSlopes[6] = {0.5f, 0.25f, 0.125f, 1.0f, 2.0f, 4.0f};

Attention attention(float scale, float softcap, bool alibi) {
  Attention a{};
  a.num_heads = 3;
  a.scale = scale;
  a.softcap = softcap;
  a.alibi_slopes = alibi ? kSlopes : nullptr;
  return a;
}

Sequence sequence(int64_t offset) { return {.q = {}, .k = {}, .offset = offset}; }

TEST(ScoreTest, IsTheScaledProduct) {
  for (const float scale : {0.125f, -2.0f, 1.0f}) {
    const Score<double> score = score_of<double>(attention(scale, 0, false), 3.0, 0.0, sequence(0), 0, 0);
    EXPECT_EQ(score.value, 3.0 * scale);
    EXPECT_EQ(score.factor, 1.0);
  }
}

TEST(ScoreTest, SoftcapFollowsItsFormula) {
  const double cap = 20.0;
  for (double product = -200; product <= 200; product += 7.3) {
    const Score<double> score = score_of<double>(attention(0.5f, 20.0f, false), product, 0.0, sequence(0), 0, 0);
    EXPECT_NEAR(score.value, cap * std::tanh(0.5 * product / cap), 1e-13);
    EXPECT_LE(std::fabs(score.value), cap);
  }
}

// factor = d value / d (scale * product), by central differences.
TEST(ScoreTest, FactorIsTheDerivative) {
  for (const float softcap : {0.0f, 1.0f, 30.0f}) {
    for (const bool alibi : {false, true}) {
      const Attention a = attention(0.25f, softcap, alibi);
      const auto value = [&](double product) { return score_of<double>(a, product, 0.5, sequence(2), 1, 7).value; };
      for (double product = -40; product <= 40; product += 3.7) {
        const double step = 1e-5;
        const double slope = (value(product + step) - value(product - step)) / (2 * step) / 0.25;
        EXPECT_NEAR(score_of<double>(a, product, 0.5, sequence(2), 1, 7).factor, slope, 1e-8) << "softcap " << softcap;
      }
    }
  }
}

TEST(ScoreTest, HugeProductsStayFinite) {
  for (const float product : {1e4f, -1e4f, 3e38f, -3e38f}) {
    const Score<float> score = score_of<float>(attention(1.0f, 30.0f, false), product, 0.0f, sequence(0), 0, 0);
    EXPECT_EQ(score.value, std::copysign(30.0f, product));
    EXPECT_EQ(score.factor, 0.0f);
  }
}

TEST(ScoreTest, AlibiIsTheDistanceFromTheDiagonal) {
  const Attention a = attention(1.0f, 0.0f, true);
  for (const int64_t offset : {-5, -1, 0, 3}) {
    for (int32_t row = 0; row < 6; ++row) {
      for (int32_t key = 0; key < 6; ++key) {
        const double expected = 2.0 - 0.5 * std::fabs(static_cast<double>(row + offset - key));
        EXPECT_EQ(score_of<double>(a, 2.0, 0.5, sequence(offset), row, key).value, expected);
      }
    }
  }
}

TEST(ScoreTest, AlibiDistanceIsSixtyFourBits) {
  const Attention a = attention(1.0f, 0.0f, true);
  const double far = score_of<double>(a, 0.0, 1.0, sequence(-int64_t{INT32_MAX}), 0, INT32_MAX).value;
  EXPECT_EQ(far, -2.0 * INT32_MAX);
}

TEST(ScoreTest, SlopesBelongToHeadsOrToEntries) {
  Attention a = attention(1.0f, 0.0f, true);
  for (int32_t head = 0; head < 3; ++head) {
    a.alibi_batch_stride = 0;
    EXPECT_EQ(alibi_slope(a, 1, head), kSlopes[head]);
    a.alibi_batch_stride = 3;
    EXPECT_EQ(alibi_slope(a, 1, head), kSlopes[3 + head]);
  }
  a.alibi_slopes = nullptr;
  EXPECT_EQ(alibi_slope(a, 1, 2), 0.0f);
}

TEST(ScoreTest, WeightsAreAtMostOne) {
  const Score<float> score{1e9f + 64.0f, 1.0f};
  EXPECT_EQ(pair_weights(score, 1e9f, 2.0f).p, 1.0f) << "exp of 64 otherwise";
  EXPECT_EQ(pair_weights(score, 1e9f, 2.0f).ds, 2.0f);
  EXPECT_EQ(pair_weights(score, 1e9f + 128.0f, 2.0f).p, std::exp(-64.0f));
  EXPECT_TRUE(std::isnan(pair_weights(Score<float>{NAN, 1.0f}, 0.0f, 2.0f).p));
}

TEST(ScoreTest, NanStaysNan) {
  for (const float softcap : {0.0f, 30.0f}) {
    EXPECT_TRUE(std::isnan(score_of<float>(attention(1.0f, softcap, true), NAN, 0.5f, sequence(0), 0, 0).value));
  }
}

}  // namespace
}  // namespace cuflash
