// SPDX-License-Identifier: MIT
// The check of cuflash_bench itself: that it passes right results, whole and in part, and finds wrong ones.
#include "check.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "failure.h"

namespace cuflash::bench {
namespace {

constexpr double kPartOnly = 2e5;  // less than a head of the cases below

std::vector<Case> cases() {
  Case grouped{
      .batch = 2, .num_heads = 4, .num_heads_k = 2, .seqlen_q = 50, .seqlen_k = 70, .head_dim = 40, .head_dim_v = 24};
  Case causal = grouped;
  causal.mask = CUFLASH_MASK_CAUSAL;
  Case blind = causal;  // its first rows see no key: o = 0, lse = -inf
  blind.seqlen_q = 90;
  Case window = grouped;
  window.mask = CUFLASH_MASK_WINDOW;
  window.window_left = 20;
  window.window_right = 5;
  std::vector<Case> all;
  for (Case c : {grouped, causal, blind, window}) {
    for (const cuflashOperation_t operation : {CUFLASH_OP_FORWARD, CUFLASH_OP_BACKWARD}) {
      for (const cuflashDataType_t dtype : {CUFLASH_R_32F, CUFLASH_R_16F, CUFLASH_R_16BF}) {
        c.operation = operation;
        c.dtype = dtype;
        all.push_back(c);
      }
    }
  }
  return all;
}

void run(Attention& attention) {
  attention.poison_outputs();
  prepare_library_call(attention, "host").call(nullptr);
}

std::string failure_of(const Attention& attention, double max_flops) {
  try {
    check_outputs(attention, max_flops);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

// The last element of a tensor belongs to every part that a check may choose.
float& last_element(const Buffer& buffer) {
  return static_cast<float*>(buffer.data())[buffer.bytes() / sizeof(float) - 1];
}

TEST(Check, PassesRightResultsWholeAndInPart) {
  for (const Case& c : cases()) {
    for (const Layout layout : {Layout::kBshd, Layout::kBhsd}) {
      SCOPED_TRACE(benchmark_name(c, "host", Temperature::kHot));
      Attention attention(c, CUFLASH_DEVICE_HOST, layout);
      run(attention);
      const CheckResult whole = check_outputs(attention);
      EXPECT_EQ(whole.scope, "all");
      const CheckResult part = check_outputs(attention, kPartOnly);
      EXPECT_NE(part.scope.find("one head, "), std::string::npos) << part.scope;
      const double rounding = c.dtype == CUFLASH_R_32F ? 1e-6 : c.dtype == CUFLASH_R_16F ? 1e-3 : 1e-2;
      EXPECT_LT(whole.relative_error, rounding);
      EXPECT_LT(part.relative_error, rounding);
    }
  }
}

TEST(Check, FindsAWrongElementOfEveryOutput) {
  for (Case c : cases()) {
    if (c.dtype != CUFLASH_R_32F) continue;
    SCOPED_TRACE(benchmark_name(c, "host", Temperature::kHot));
    for (const double max_flops : {4e9, kPartOnly}) {
      Attention attention(c, CUFLASH_DEVICE_HOST, Layout::kBshd);
      run(attention);
      const bool forward = c.operation == CUFLASH_OP_FORWARD;
      const std::vector<const Buffer*> outputs =
          forward ? std::vector<const Buffer*>{&attention.o, &attention.lse}
                  : std::vector<const Buffer*>{&attention.dq, &attention.dk, &attention.dv};
      for (const Buffer* output : outputs) {
        const float right = last_element(*output);
        last_element(*output) = right + 1.0f;
        EXPECT_NE(failure_of(attention, max_flops).find("relative error"), std::string::npos);
        last_element(*output) = right;
      }
      EXPECT_EQ(failure_of(attention, max_flops), "");
    }
  }
}

TEST(Check, FindsWhatWasNotWritten) {
  for (const Case& c : cases()) {
    Attention attention(c, CUFLASH_DEVICE_HOST, Layout::kBshd);
    attention.poison_outputs();
    EXPECT_NE(failure_of(attention, kPartOnly).find("not written"), std::string::npos);
  }
}

TEST(ChooseRegion, KeepsTheWholeCaseIfItIsCheap) {
  const Case c = cases().front();
  EXPECT_EQ(region_case(c, choose_region(c, Cut::kRows, 1e12)), c);
}

TEST(ChooseRegion, CutsToTheLimit) {
  Case c{
      .operation = CUFLASH_OP_BACKWARD,
      .batch = 4,
      .num_heads = 16,
      .num_heads_k = 4,
      .seqlen_q = 4096,
      .seqlen_k = 4096};
  c.mask = CUFLASH_MASK_CAUSAL;
  for (const Cut cut : {Cut::kRows, Cut::kKeys}) {
    const Case part = region_case(c, choose_region(c, cut, 1e9));
    EXPECT_LE(flops(part), 1e9);
    EXPECT_GE(flops(part), 1e8);
    EXPECT_EQ(part.batch, 1);
    EXPECT_EQ(part.num_heads, 4);
    EXPECT_EQ(part.num_heads_k, 1);
  }
}

}  // namespace
}  // namespace cuflash::bench
