// SPDX-License-Identifier: MIT
// The host kernel on cases whose results are known by hand, at the edges, and on what makes it a reference: results are
// repeatable, and the same for an entry alone as in a batch. (workers_test.cpp: and for any number of threads.)
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "host_attention.h"
#include "support/random.h"

namespace cuflash::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One entry, one head, fp32, no mask.
cuflashForwardParams_t single_head(int32_t seqlen_q, int32_t seqlen_k, int32_t head_dim) {
  cuflashForwardParams_t p = {};
  p.dtype = CUFLASH_R_32F;
  p.batch = p.num_heads = p.num_heads_k = 1;
  p.seqlen_q = seqlen_q;
  p.seqlen_k = seqlen_k;
  p.head_dim = head_dim;
  p.softmax_scale = 1.0f;
  return p;
}

void fill(const HostAttention& x, HostAttention::Bytes* tensor, const std::vector<float>& values) {
  ASSERT_EQ(x.count(*tensor), values.size());
  for (size_t i = 0; i < values.size(); ++i) x.set(*tensor, i, values[i]);
}

void fill(const HostAttention& x, HostAttention::Bytes* tensor, float value) {
  fill(x, tensor, std::vector<float>(x.count(*tensor), value));
}

void expect_values(const HostAttention& x, const HostAttention::Bytes& tensor, const std::vector<double>& expected) {
  ASSERT_EQ(x.count(tensor), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(x.get(tensor, i), expected[i]) << "element " << i;
}

void fill_random(HostAttention* x, uint64_t seed) {
  Random random(seed);
  for (HostAttention::Bytes* tensor : {&x->q, &x->k, &x->v, &x->dout}) {
    for (size_t i = 0; i < x->count(*tensor); ++i) x->set(*tensor, i, random.normal());
  }
  x->dlse.resize(x->lse.size());
  for (float& value : x->dlse) value = random.normal();
}

void run(HostAttention* x) {
  x->forward();
  x->backward();
}

void expect_same_bits(const HostAttention& x, const HostAttention& y) {
  EXPECT_EQ(x.o, y.o);
  EXPECT_EQ(x.dq, y.dq);
  EXPECT_EQ(x.dk, y.dk);
  EXPECT_EQ(x.dv, y.dv);
  ASSERT_EQ(x.lse.size(), y.lse.size());
  for (size_t i = 0; i < x.lse.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(x.lse[i]), std::bit_cast<uint32_t>(y.lse[i])) << i;
  }
}

// ---- Known by hand --------------------------------------------------------------------------------------------------

TEST(ReferenceByHand, OneKeyHasWeightOne) {
  HostAttention x(single_head(1, 1, 2));
  fill(x, &x.q, {1.0f, 2.0f});
  fill(x, &x.k, {0.5f, -4.0f});
  fill(x, &x.v, {3.0f, -7.0f});
  fill(x, &x.dout, {2.0f, 5.0f});
  x.dlse = {10.0f};
  run(&x);
  expect_values(x, x.o, {3.0, -7.0});
  EXPECT_EQ(x.lse[0], -7.5f);
  expect_values(x, x.dv, {2.0, 5.0});
  expect_values(x, x.dq, {5.0, -40.0});  // ds = dlse: o does not depend on the score
  expect_values(x, x.dk, {10.0, 20.0});
}

TEST(ReferenceByHand, EqualScoresGiveTheMean) {
  HostAttention x(single_head(1, 4, 1));
  fill(x, &x.q, 0.0f);
  fill(x, &x.k, {1.0f, 2.0f, 3.0f, 4.0f});
  fill(x, &x.v, {10.0f, 20.0f, 40.0f, 50.0f});
  fill(x, &x.dout, 4.0f);
  run(&x);
  expect_values(x, x.o, {30.0});
  EXPECT_FLOAT_EQ(x.lse[0], std::log(4.0f));
  expect_values(x, x.dv, {1.0, 1.0, 1.0, 1.0});
  expect_values(x, x.dq, {-20.0 - 20.0 + 30.0 + 80.0});  // ds = (v - o) * dout / 4 = v - 30
  expect_values(x, x.dk, {0.0, 0.0, 0.0, 0.0});
}

TEST(ReferenceByHand, WeightsOfThreeQuartersAndOne) {
  HostAttention x(single_head(1, 2, 1));
  const float ln3 = std::log(3.0f);
  fill(x, &x.q, 2.0f);
  fill(x, &x.k, {ln3 / 2.0f, 0.0f});
  fill(x, &x.v, {4.0f, 8.0f});
  fill(x, &x.dout, 1.0f);
  run(&x);
  expect_values(x, x.o, {5.0});
  EXPECT_FLOAT_EQ(x.lse[0], std::log(4.0f));
  expect_values(x, x.dv, {0.75, 0.25});
  expect_values(x, x.dk, {-1.5, 1.5});  // ds = -0.75, 0.75
  expect_values(x, x.dq, {-0.75 * ln3 / 2.0});
}

TEST(ReferenceByHand, ScoresBeyondTheRangeOfExp) {
  for (const float size : {1e4f, -1e4f}) {
    HostAttention x(single_head(1, 2, 1));
    fill(x, &x.q, size);
    fill(x, &x.k, 1.0f);
    fill(x, &x.v, {1.0f, 3.0f});
    fill(x, &x.dout, 1.0f);
    x.forward();
    expect_values(x, x.o, {2.0});
    EXPECT_FLOAT_EQ(x.lse[0], size + std::log(2.0f));
  }
}

// What row i sees, as the public header draws it: values are powers of two, so o * (number of keys) names the keys.
std::string drawn_mask(int32_t seqlen_q, int32_t seqlen_k, cuflashAlignment_t alignment) {
  cuflashForwardParams_t p = single_head(seqlen_q, seqlen_k, 1);
  p.mask = CUFLASH_MASK_CAUSAL;
  p.alignment = alignment;
  HostAttention x(p);
  fill(x, &x.q, 0.0f);
  fill(x, &x.k, 0.0f);
  for (int32_t j = 0; j < seqlen_k; ++j) x.set(x.v, static_cast<size_t>(j), std::exp2(static_cast<float>(j)));
  x.forward();
  std::string drawing;
  for (size_t i = 0; i < static_cast<size_t>(seqlen_q); ++i) {
    const auto keys = std::lround(x.get(x.o, i) * std::exp(static_cast<double>(x.lse[i])));
    for (int32_t j = 0; j < seqlen_k; ++j) drawing += (keys >> j & 1) != 0 ? '1' : '0';
    drawing += ' ';
  }
  return drawing;
}

TEST(ReferenceByHand, MasksAreAsDrawnInTheHeader) {
  EXPECT_EQ(drawn_mask(2, 5, CUFLASH_ALIGN_TOP_LEFT), "10000 11000 ");
  EXPECT_EQ(drawn_mask(2, 5, CUFLASH_ALIGN_BOTTOM_RIGHT), "11110 11111 ");
  EXPECT_EQ(drawn_mask(5, 2, CUFLASH_ALIGN_TOP_LEFT), "10 11 11 11 11 ");
  EXPECT_EQ(drawn_mask(5, 2, CUFLASH_ALIGN_BOTTOM_RIGHT), "00 00 00 10 11 ");
}

TEST(ReferenceByHand, QueryHeadsReadTheKeyHeadOfTheirGroup) {
  cuflashForwardParams_t p = single_head(1, 1, 1);
  p.num_heads = 6;
  p.num_heads_k = 2;
  HostAttention x(p);
  fill(x, &x.q, 1.0f);
  fill(x, &x.k, 1.0f);
  fill(x, &x.v, {10.0f, 20.0f});
  fill(x, &x.dout, {1.0f, 2.0f, 4.0f, 8.0f, 16.0f, 32.0f});
  run(&x);
  expect_values(x, x.o, {10.0, 10.0, 10.0, 20.0, 20.0, 20.0});
  expect_values(x, x.dv, {7.0, 56.0});
}

// ---- Edges ----------------------------------------------------------------------------------------------------------

TEST(ReferenceEdges, KeysThatNobodyReadsGetZeroGradients) {
  for (const bool no_heads : {true, false}) {
    cuflashForwardParams_t p = single_head(3, 40, 5);
    p.num_heads_k = 2;
    p.num_heads = no_heads ? 0 : 2;
    if (!no_heads) p.seqlen_q = 0;
    HostAttention x(p);
    fill(x, &x.k, kNan);
    fill(x, &x.v, kNan);
    run(&x);
    expect_values(x, x.dk, std::vector<double>(2 * 40 * 5, 0.0));
    expect_values(x, x.dv, std::vector<double>(2 * 40 * 5, 0.0));
  }
}

TEST(ReferenceEdges, NoKeys) {
  HostAttention x(single_head(3, 0, 2));
  fill(x, &x.q, kNan);
  fill(x, &x.dout, kNan);
  run(&x);
  expect_values(x, x.o, std::vector<double>(6, 0.0));
  expect_values(x, x.dq, std::vector<double>(6, 0.0));
  EXPECT_EQ(x.lse, std::vector<float>(3, -kInfinity));
}

// NaN and infinity in keys that a row does not see change no bit of its results.
TEST(ReferenceEdges, HiddenAnomaliesChangeNothing) {
  constexpr int32_t kLength = 70;
  constexpr int32_t kDim = 3;
  constexpr size_t kFirstBad = 41;  // keys from here on are bad: only rows from here on see them
  cuflashForwardParams_t p = single_head(kLength, kLength, kDim);
  p.mask = CUFLASH_MASK_CAUSAL;
  HostAttention clean(p);
  fill_random(&clean, 1);
  run(&clean);
  for (const float anomaly : {kNan, kInfinity}) {
    HostAttention x(p);
    fill_random(&x, 1);
    for (size_t i = kFirstBad * kDim; i < x.count(x.k); ++i) {
      x.set(x.k, i, anomaly);
      x.set(x.v, i, anomaly);
    }
    run(&x);
    for (size_t i = 0; i < kFirstBad * kDim; ++i) {
      ASSERT_EQ(x.get(x.o, i), clean.get(clean.o, i)) << i;
      ASSERT_EQ(x.get(x.dq, i), clean.get(clean.dq, i)) << i;
    }
    for (size_t row = 0; row < kFirstBad; ++row) ASSERT_EQ(x.lse[row], clean.lse[row]) << row;
  }
}

// A row whose lse says that it saw nothing adds nothing to any gradient, whatever its o and dlse hold.
TEST(ReferenceEdges, RowsThatSawNothingAddNothing) {
  HostAttention x(single_head(2, 3, 1));
  fill_random(&x, 6);
  x.forward();
  x.lse[1] = -kInfinity;
  x.dlse[1] = kNan;
  x.set(x.o, 1, kNan);
  x.backward();
  EXPECT_EQ(x.get(x.dq, 1), 0.0);

  HostAttention first_row(single_head(1, 3, 1));
  for (HostAttention::Bytes HostAttention::*tensor : {&HostAttention::q, &HostAttention::o, &HostAttention::dout}) {
    first_row.set(first_row.*tensor, 0, static_cast<float>(x.get(x.*tensor, 0)));
  }
  first_row.k = x.k;
  first_row.v = x.v;
  first_row.lse = {x.lse[0]};
  first_row.dlse = {x.dlse[0]};
  first_row.backward();
  EXPECT_EQ(x.dk, first_row.dk);
  EXPECT_EQ(x.dv, first_row.dv);
}

TEST(ReferenceEdges, AnomaliesReachTheRowsThatSeeThem) {
  cuflashForwardParams_t p = single_head(4, 4, 1);
  p.mask = CUFLASH_MASK_CAUSAL;
  HostAttention x(p);
  fill_random(&x, 2);
  x.set(x.v, 2, kNan);
  x.forward();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(std::isnan(x.get(x.o, i)), i >= 2) << i;
  fill_random(&x, 2);
  x.set(x.k, 2, kNan);
  x.forward();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(std::isnan(x.lse[i]), i >= 2) << i;
}

// Whatever the length arrays hold, only rows of the tensors are touched (and rows outside of them would be caught by
// AddressSanitizer); entries keep to the rows that are theirs after clamping.
TEST(ReferenceEdges, LengthsAreClamped) {
  const std::array<int32_t, 4> cu_seqlens = {-5, 3, 100, 2};  // rows 0..2, 3..6 cut to 3, none
  const std::array<int32_t, 3> seqused = {-1, 1000, 4};
  cuflashForwardParams_t p = single_head(3, 3, 2);
  p.batch = 3;
  p.total_q = p.total_k = 7;
  p.cu_seqlens_q = p.cu_seqlens_k = cu_seqlens.data();
  p.seqused_q = seqused.data();
  HostAttention x(p);
  fill_random(&x, 3);
  run(&x);
  for (size_t row = 0; row < 7; ++row) {
    const bool owned = row >= 3 && row < 6;
    EXPECT_NE(x.is_poison(x.o, 2 * row), owned) << row;
    EXPECT_NE(x.is_poison(x.dq, 2 * row), owned) << row;
    EXPECT_EQ(x.is_poison(x.dk, 2 * row), row == 6) << row;
  }
}

// ---- What makes it a reference --------------------------------------------------------------------------------------

// Two entries of unequal lengths, grouped heads, a window that crosses blocks: more than one tile on either side.
cuflashForwardParams_t two_entries(const int32_t* cu_seqlens) {
  cuflashForwardParams_t p = single_head(70, 70, 6);
  p.batch = 2;
  p.num_heads = 4;
  p.num_heads_k = 2;
  p.mask = CUFLASH_MASK_WINDOW;
  p.window_left = 40;
  p.window_right = 3;
  p.cu_seqlens_q = p.cu_seqlens_k = cu_seqlens;
  p.total_q = p.total_k = cu_seqlens[2];
  return p;
}

TEST(ReferenceRepeats, SameBitsEachTime) {
  const std::array<int32_t, 3> cu_seqlens = {0, 70, 115};
  HostAttention first(two_entries(cu_seqlens.data()));
  fill_random(&first, 4);
  run(&first);
  for (int repeat = 0; repeat < 20; ++repeat) {
    HostAttention again(two_entries(cu_seqlens.data()));
    fill_random(&again, 4);
    run(&again);
    expect_same_bits(first, again);
  }
}

TEST(ReferenceRepeats, AnEntryAloneGivesTheBitsItHasInABatch) {
  const std::array<int32_t, 3> cu_seqlens = {0, 70, 115};
  HostAttention batch(two_entries(cu_seqlens.data()));
  fill_random(&batch, 5);
  run(&batch);
  for (size_t entry = 0; entry < 2; ++entry) {
    const auto begin = static_cast<size_t>(cu_seqlens[entry]);
    const auto end = static_cast<size_t>(cu_seqlens[entry + 1]);
    cuflashForwardParams_t p = two_entries(cu_seqlens.data());
    p.batch = 1;
    p.seqlen_q = p.seqlen_k = static_cast<int32_t>(end - begin);
    p.cu_seqlens_q = p.cu_seqlens_k = nullptr;
    p.total_q = p.total_k = 0;
    HostAttention alone(p);
    const auto rows_of = [&](const HostAttention::Bytes& tensor) {
      const size_t row_bytes = tensor.size() / 115;
      return HostAttention::Bytes(tensor.data() + begin * row_bytes, tensor.data() + end * row_bytes);
    };
    alone.q = rows_of(batch.q);
    alone.k = rows_of(batch.k);
    alone.v = rows_of(batch.v);
    alone.dout = rows_of(batch.dout);
    for (size_t head = 0; head < 4; ++head) {
      alone.dlse.insert(alone.dlse.end(), &batch.dlse[head * 115 + begin], &batch.dlse[head * 115] + end);
    }
    run(&alone);
    EXPECT_EQ(alone.o, rows_of(batch.o));
    EXPECT_EQ(alone.dq, rows_of(batch.dq));
    EXPECT_EQ(alone.dk, rows_of(batch.dk));
    EXPECT_EQ(alone.dv, rows_of(batch.dv));
    for (size_t head = 0; head < 4; ++head) {
      for (size_t row = begin; row < end; ++row) {
        EXPECT_EQ(alone.lse[head * (end - begin) + row - begin], batch.lse[head * 115 + row]);
      }
    }
  }
}

}  // namespace
}  // namespace cuflash::test
