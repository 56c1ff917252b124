// SPDX-License-Identifier: MIT
// Combinations: random cases over all features. Case n is random_case(n), so a higher level adds to the lower ones.
#include <gtest/gtest.h>

#include "support/cases.h"
#include "support/conformance.h"
#include "support/target.h"

namespace cuflash::test {
namespace {

TEST(FuzzTest, RandomCases) {
  constexpr int32_t kCountOnGpu[4] = {50, 500, 5'000, 50'000};
  constexpr int32_t kCountOnHost[4] = {40, 300, 3'000, 30'000};
  const int32_t count = target().device() == CUFLASH_DEVICE_HOST ? by_level(kCountOnHost) : by_level(kCountOnGpu);
  std::vector<Case> cases;
  for (int32_t seed = 0; seed < count; ++seed) cases.push_back(random_case(static_cast<uint64_t>(seed)));
  expect_conformance(cases);
}

}  // namespace
}  // namespace cuflash::test
