// SPDX-License-Identifier: MIT
// Scores so large that rounding lse to fp32 moves it by more than any weight can bear: exp(s - lse) would be infinite.
#include <gtest/gtest.h>

#include <cmath>

#include "host_attention.h"

namespace cuflash::test {
namespace {

// Equal keys whose score is 2^exponent + 0.4 of fp32's spacing there, which rounds down.
HostAttention equal_keys(int32_t keys, int exponent) {
  cuflashForwardParams_t shape = {};
  shape.dtype = CUFLASH_R_32F;
  shape.batch = 1;
  shape.num_heads = shape.num_heads_k = 1;
  shape.seqlen_q = 1;
  shape.seqlen_k = keys;
  shape.head_dim = 2;
  shape.softmax_scale = 1.0f;
  HostAttention attention(shape);
  for (size_t e = 0; e < 2; ++e) {
    attention.set(attention.q, e, 1.0f);
    attention.set(attention.dout, e, 3.0f);
  }
  for (size_t key = 0; key < static_cast<size_t>(keys); ++key) {
    attention.set(attention.k, 2 * key, std::ldexp(1.0f, exponent));
    attention.set(attention.k, 2 * key + 1, 0.4f * std::ldexp(1.0f, exponent - 23));
    attention.set(attention.v, 2 * key, 1.0f + static_cast<float>(key));
    attention.set(attention.v, 2 * key + 1, -2.0f);
  }
  return attention;
}

class HugeScoreTest : public ::testing::TestWithParam<int> {};  // the exponent

TEST_P(HugeScoreTest, OneKeyHasWeightOne) {
  HostAttention attention = equal_keys(1, GetParam());
  attention.forward();
  EXPECT_EQ(attention.get(attention.o, 0), 1.0);
  EXPECT_EQ(attention.lse[0], std::ldexp(1.0f, GetParam())) << "the case must round down";
  attention.backward();
  for (size_t e = 0; e < 2; ++e) {
    EXPECT_EQ(attention.get(attention.dv, e), 3.0);
    EXPECT_EQ(attention.get(attention.dq, e), 0.0);
    EXPECT_EQ(attention.get(attention.dk, e), 0.0);
  }
}

TEST_P(HugeScoreTest, TwoEqualKeysHaveWeightsOfAtMostOne) {
  HostAttention attention = equal_keys(2, GetParam());
  attention.forward();
  EXPECT_EQ(attention.get(attention.o, 0), 1.5) << "the forward pass has no part in this: weights are 1/2";
  attention.backward();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_GT(attention.get(attention.dv, i), 0.0);
    EXPECT_LE(attention.get(attention.dv, i), 3.0) << "p times dout";
    EXPECT_LE(std::fabs(attention.get(attention.dk, i)), 1.5) << "p times (dp - delta), which is 3/2 of either sign";
  }
  // dq = sum of ds * k, where the ds of the two keys cancel.
  for (size_t e = 0; e < 2; ++e) EXPECT_EQ(attention.get(attention.dq, e), 0.0);
}

INSTANTIATE_TEST_SUITE_P(FromABillionToTenTrillion, HugeScoreTest, ::testing::Values(30, 33, 37, 40, 43));

}  // namespace
}  // namespace cuflash::test
