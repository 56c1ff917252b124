// SPDX-License-Identifier: MIT
// Shapes: every kernel over the grid of head dims, masks, head sharing and lengths, per dtype and direction.
#include <gtest/gtest.h>

#include "support/cases.h"
#include "support/conformance.h"
#include "support/target.h"

namespace cuflash::test {
namespace {

struct GridTest : testing::Test {
  // 792 cases a round: 2,376 a direction at the default level. The host kernel runs a share of them.
  static void run(Op op, DType dtype) {
    constexpr int32_t kRounds[4] = {1, 1, 2, 6};
    constexpr int32_t kNthOnGpu[4] = {16, 1, 1, 1};
    constexpr int32_t kNthOnHost[4] = {80, 13, 5, 1};
    const int32_t nth = target().device() == CUFLASH_DEVICE_HOST ? by_level(kNthOnHost) : by_level(kNthOnGpu);
    std::vector<Case> cases = grid_cases(op, dtype, by_level(kRounds));
    // The reference under sanitizers is twenty times slower: long lengths are left to the other levels.
    if (test_level() == 0) std::erase_if(cases, [](const Case& c) { return c.seqlen_q * c.seqlen_k > 20'000; });
    expect_conformance(every_nth(cases, nth));
  }
};

TEST_F(GridTest, ForwardFp32) { run(Op::kForward, DType::kFp32); }
TEST_F(GridTest, ForwardFp16) { run(Op::kForward, DType::kFp16); }
TEST_F(GridTest, ForwardBf16) { run(Op::kForward, DType::kBf16); }
TEST_F(GridTest, BackwardFp32) { run(Op::kBackward, DType::kFp32); }
TEST_F(GridTest, BackwardFp16) { run(Op::kBackward, DType::kFp16); }
TEST_F(GridTest, BackwardBf16) { run(Op::kBackward, DType::kBf16); }

}  // namespace
}  // namespace cuflash::test
