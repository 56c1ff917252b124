// SPDX-License-Identifier: MIT
#include "timer.h"

#include <gtest/gtest.h>

namespace cuflash::bench {
namespace {

TEST(Samples, MedianOfOddAndEvenCounts) {
  EXPECT_DOUBLE_EQ((Samples{{3, 1, 2}}).median(), 2);
  EXPECT_DOUBLE_EQ((Samples{{4, 1, 3, 2}}).median(), 2.5);
  EXPECT_DOUBLE_EQ((Samples{{4, 1, 3, 2}}).min(), 1);
}

TEST(SampleCount, IsWhatFitsButAtLeastThree) {
  const SampleRule rule{.wanted = 20, .max_seconds = 2.0};
  EXPECT_EQ(sample_count(rule, 0.001), 20);
  EXPECT_EQ(sample_count(rule, 0.2), 10);
  EXPECT_EQ(sample_count(rule, 1.5), 3);
  EXPECT_EQ(sample_count(rule, 0.0), 20);
}

TEST(MeasureOnHost, CallsOnceMoreThanItSamples) {
  int calls = 0;
  const Samples samples = measure_on_host([&](cudaStream_t) { ++calls; }, {.wanted = 7, .max_seconds = 60.0});
  EXPECT_EQ(samples.seconds.size(), 7u);
  EXPECT_EQ(calls, 8);
}

TEST(MeasureOnHost, TakesTheWarmUpOfACallThatIsTooLong) {
  int calls = 0;
  const Samples samples = measure_on_host([&](cudaStream_t) { ++calls; }, {.wanted = 7, .max_seconds = 0.0});
  EXPECT_EQ(samples.seconds.size(), 1u);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace cuflash::bench
