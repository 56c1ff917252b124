// SPDX-License-Identifier: MIT
// The online softmax, block by block, against the softmax computed at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/online_softmax.h"

namespace cuflash {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Real>
struct Result {
  Real lse;
  Real output;  // sum of weights * values
};

// The loop of every kernel: blocks of scores, one value per key.
template <class Real>
Result<Real> blockwise(const std::vector<Real>& scores, const std::vector<Real>& values, size_t block) {
  RowState<Real> state = RowState<Real>::empty();
  Real accumulated = 0;
  for (size_t begin = 0; begin < scores.size(); begin += block) {
    const size_t end = std::min(begin + block, scores.size());
    Real block_max = kNegativeInfinity<Real>;
    for (size_t j = begin; j < end; ++j) block_max = max_or_nan(block_max, scores[j]);
    accumulated *= state.raise(block_max);
    for (size_t j = begin; j < end; ++j) {
      const Real weight = std::exp(scores[j] - state.shift());
      state.row_sum += weight;
      accumulated += weight * values[j];
    }
  }
  return {state.lse(), accumulated * state.inverse_sum()};
}

// By definition, in long double.
Result<double> direct(const std::vector<double>& scores, const std::vector<double>& values) {
  long double highest = -INFINITY, sum = 0, output = 0;
  for (const double s : scores) highest = std::max<long double>(highest, s);
  if (highest == -INFINITY) return {-kInf, 0.0};
  for (size_t j = 0; j < scores.size(); ++j) {
    const long double weight = std::exp(scores[j] - highest);
    sum += weight;
    output += weight * values[j];
  }
  return {static_cast<double>(highest + std::log(sum)), static_cast<double>(output / sum)};
}

std::vector<double> ramp(size_t count, double from, double step) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = from + step * static_cast<double>(i * 7 % count);
  return values;
}

TEST(OnlineSoftmax, EveryBlockSizeGivesTheSoftmax) {
  for (const size_t count : {1, 2, 3, 17, 64}) {
    for (const double step : {0.0, 0.1, 30.0, -30.0}) {
      const std::vector<double> scores = ramp(count, -4.0, step), values = ramp(count, 1.0, 0.5);
      const Result<double> expected = direct(scores, values);
      for (size_t block = 1; block <= count; ++block) {
        const Result<double> result = blockwise(scores, values, block);
        EXPECT_NEAR(result.lse, expected.lse, 1e-12 * std::max(1.0, std::fabs(expected.lse)));
        EXPECT_NEAR(result.output, expected.output, 1e-12 * std::max(1.0, std::fabs(expected.output)));
      }
    }
  }
}

// Running maxima that rise, fall and stay; with the largest scores that fp32 can hold no exponential overflows.
TEST(OnlineSoftmax, SinglePrecisionHoldsExtremeScores) {
  const std::vector<std::vector<float>> rows = {
      {1e4f, -1e4f, 0.0f, 1e4f},
      {-1e4f, -9.9e3f, -9.8e3f},
      {-3e38f, 3e38f},
      {3e38f, -3e38f},
      {-200.0f, -200.5f},
      {1e-40f, -1e-40f}};
  for (const std::vector<float>& scores : rows) {
    const std::vector<float> values(scores.size(), 2.0f);
    const Result<double> expected = direct({scores.begin(), scores.end()}, {values.begin(), values.end()});
    for (size_t block = 1; block <= scores.size(); ++block) {
      const Result<float> result = blockwise(scores, values, block);
      EXPECT_FLOAT_EQ(result.lse, static_cast<float>(expected.lse));
      EXPECT_FLOAT_EQ(result.output, 2.0f);
    }
  }
}

TEST(OnlineSoftmax, NoKeyGivesZeroAndMinusInfinity) {
  const Result<double> result = blockwise<double>({}, {}, 1);
  EXPECT_EQ(result.lse, -kInf);
  EXPECT_EQ(result.output, 0.0);
}

// Blocks of -inf scores before, between and after others change nothing; alone they are as no key.
TEST(OnlineSoftmax, MinusInfinityWeighsNothing) {
  for (size_t block = 1; block <= 4; ++block) {
    const Result<double> hidden = blockwise<double>({-kInf, -kInf, -kInf}, {1, 2, 3}, block);
    EXPECT_EQ(hidden.lse, -kInf);
    EXPECT_EQ(hidden.output, 0.0);
    for (const std::vector<double>& scores :
         {std::vector<double>{-kInf, -kInf, 1.5}, {-kInf, 1.5, -kInf}, {1.5, -kInf, -kInf}}) {
      const Result<double> result = blockwise<double>(scores, {7, 7, 7}, block);
      EXPECT_EQ(result.lse, 1.5);
      EXPECT_EQ(result.output, 7.0);
    }
  }
}

TEST(OnlineSoftmax, NanReachesItsRow) {
  for (size_t block = 1; block <= 3; ++block) {
    for (size_t where = 0; where < 3; ++where) {
      std::vector<double> scores = {1.0, -kInf, 2.0};
      scores[where] = kNan;
      const Result<double> result = blockwise<double>(scores, {1, 1, 1}, block);
      EXPECT_TRUE(std::isnan(result.lse)) << "NaN at " << where << ", blocks of " << block;
      EXPECT_TRUE(std::isnan(result.output)) << "NaN at " << where << ", blocks of " << block;
    }
  }
}

TEST(OnlineSoftmax, PlusInfinityIsNotHidden) {
  const Result<double> result = blockwise<double>({1.0, kInf}, {1, 1}, 1);
  EXPECT_TRUE(std::isnan(result.output)) << "inf - inf: no finite answer may come of it";
}

TEST(OnlineSoftmax, TheMaximumKeepsNan) {
  EXPECT_EQ(max_or_nan(1.0, 2.0), 2.0);
  EXPECT_EQ(max_or_nan(2.0, 1.0), 2.0);
  EXPECT_EQ(max_or_nan(-kInf, -kInf), -kInf);
  EXPECT_TRUE(std::isnan(max_or_nan(kNan, 1.0)));
  EXPECT_TRUE(std::isnan(max_or_nan(1.0, kNan)));
}

TEST(OnlineSoftmax, RaiseReportsWhatToMultiplyWith) {
  RowState<double> state = RowState<double>::empty();
  EXPECT_EQ(state.raise(3.0), 0.0) << "nothing was accumulated yet";
  state.row_sum = 2.0;
  EXPECT_EQ(state.raise(1.0), 1.0) << "a lower maximum changes nothing";
  EXPECT_EQ(state.row_max, 3.0);
  EXPECT_DOUBLE_EQ(state.raise(4.0), std::exp(-1.0));
  EXPECT_DOUBLE_EQ(state.row_sum, 2.0 * std::exp(-1.0));
}

}  // namespace
}  // namespace cuflash
