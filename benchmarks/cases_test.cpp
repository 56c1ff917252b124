// SPDX-License-Identifier: MIT
#include "cases.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "case_sets.h"
#include "options.h"

namespace cuflash::bench {
namespace {

Options parse(const std::vector<const char*>& args) { return parse_options(args); }

std::string usage_error(const std::vector<const char*>& args) {
  try {
    parse(args);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

// The rule of cuflash.h, one pair at a time.
bool sees(const Case& c, int64_t i, int64_t j) {
  const int64_t diagonal = i + c.seqlen_k - c.seqlen_q;
  if (c.mask == CUFLASH_MASK_NONE) return true;
  if (c.mask == CUFLASH_MASK_CAUSAL) return j <= diagonal;
  return (c.window_left < 0 || j >= diagonal - c.window_left) && (c.window_right < 0 || j <= diagonal + c.window_right);
}

int64_t counted_pairs(const Case& c) {
  int64_t pairs = 0;
  for (int64_t i = 0; i < c.seqlen_q; ++i) {
    for (int64_t j = 0; j < c.seqlen_k; ++j) pairs += sees(c, i, j);
  }
  return pairs;
}

TEST(VisiblePairs, EqualsACountOfEveryPair) {
  std::vector<Mask> masks = {{CUFLASH_MASK_NONE}, {CUFLASH_MASK_CAUSAL}};
  for (const int32_t left : {-1, 0, 1, 3, 100}) {
    for (const int32_t right : {-1, 0, 2, 100}) masks.push_back({CUFLASH_MASK_WINDOW, left, right});
  }
  for (const int32_t seqlen_q : {1, 2, 5, 16}) {
    for (const int32_t seqlen_k : {1, 2, 7, 16, 33}) {
      for (const Mask& mask : masks) {
        Case c;
        c.seqlen_q = seqlen_q;
        c.seqlen_k = seqlen_k;
        c.mask = mask.mask;
        c.window_left = mask.window_left;
        c.window_right = mask.window_right;
        EXPECT_EQ(visible_pairs(c), counted_pairs(c)) << shape_name(c) << " " << mask_name(c);
      }
    }
  }
}

TEST(Flops, IsThePapersFormulaForSquareShapes) {
  Case c{
      .batch = 4,
      .num_heads = 16,
      .num_heads_k = 2,
      .seqlen_q = 1024,
      .seqlen_k = 1024,
      .head_dim = 128,
      .head_dim_v = 128};
  EXPECT_DOUBLE_EQ(flops(c), 4.0 * 4 * 16 * 1024 * 1024 * 128);
  c.mask = CUFLASH_MASK_CAUSAL;  // the diagonal is visible: a little more than half
  EXPECT_DOUBLE_EQ(flops(c), 4.0 * 4 * 16 * (1024.0 * 1025 / 2) * 128);
  c.operation = CUFLASH_OP_BACKWARD;
  EXPECT_DOUBLE_EQ(flops(c), 2.5 * 4.0 * 4 * 16 * (1024.0 * 1025 / 2) * 128);
}

TEST(Flops, CountsEachProductWithItsOwnHeadDim) {
  Case c{.seqlen_q = 10, .seqlen_k = 20, .head_dim = 192, .head_dim_v = 128};
  EXPECT_DOUBLE_EQ(flops(c), 2.0 * 200 * 192 + 2.0 * 200 * 128);
  c.operation = CUFLASH_OP_BACKWARD;
  EXPECT_DOUBLE_EQ(flops(c), 2.0 * 200 * (3 * 192 + 2 * 128));
}

TEST(MinimumBytes, CountsEveryTensorOnce) {
  Case c{.dtype = CUFLASH_R_16F, .batch = 2, .num_heads = 6, .num_heads_k = 3, .seqlen_q = 5, .seqlen_k = 7};
  c.head_dim = 8;
  c.head_dim_v = 4;
  const double q = 2 * 5 * 6 * 8, k = 2 * 7 * 3 * 8, v = 2 * 7 * 3 * 4, o = 2 * 5 * 6 * 4, lse_bytes = 2 * 6 * 5 * 4;
  EXPECT_DOUBLE_EQ(minimum_bytes(c), 2 * (q + k + v + o) + lse_bytes);
  c.operation = CUFLASH_OP_BACKWARD;
  c.dtype = CUFLASH_R_32F;
  EXPECT_DOUBLE_EQ(minimum_bytes(c), 4 * (2 * q + 2 * k + 2 * v + 2 * o) + lse_bytes);
}

TEST(Names, FollowThePattern) {
  Case c{
      .batch = 4,
      .num_heads = 16,
      .num_heads_k = 16,
      .seqlen_q = 4096,
      .seqlen_k = 4096,
      .head_dim = 128,
      .head_dim_v = 128};
  c.mask = CUFLASH_MASK_CAUSAL;
  EXPECT_EQ(benchmark_name(c, "scalar", Temperature::kCold), "fwd/scalar/bf16/d128/causal/b4_h16_s4096/cold");
  c.operation = CUFLASH_OP_BACKWARD;
  c.dtype = CUFLASH_R_32F;
  c.num_heads_k = 2;
  c.seqlen_q = 1;
  c.head_dim_v = 64;
  c.mask = CUFLASH_MASK_WINDOW;
  c.window_left = 256;
  c.window_right = -1;
  EXPECT_EQ(
      benchmark_name(c, "naive", Temperature::kHot), "bwd/naive/fp32/d128_v64/window_l256_rinf/b4_h16_hk2_q1_k4096/hot"
  );
}

TEST(CaseSets, GridHas16kTokensAndHiddenSize2048) {
  const std::vector<Case> cases = gpu_cases(parse({}));
  EXPECT_EQ(cases.size(), 2u * 2 * 3 * 6);  // operations, masks, head dims, lengths
  for (const Case& c : cases) {
    EXPECT_EQ(c.batch * c.seqlen_q, 16384);
    EXPECT_EQ(c.num_heads * c.head_dim, 2048);
    EXPECT_EQ(c.seqlen_q, c.seqlen_k);
  }
}

TEST(CaseSets, NamesAreUnique) {
  for (const Options& options : {parse({}), parse({"--quick"})}) {
    std::set<std::string> names;
    const std::vector<Case> cases = gpu_cases(options);
    for (const Case& c : cases) names.insert(benchmark_name(c, "k", Temperature::kCold));
    EXPECT_EQ(names.size(), cases.size());
  }
}

TEST(CaseSets, OptionsNarrowTheGrid) {
  const auto cases =
      gpu_cases(parse({"--op=fwd", "--dtype", "fp16,fp32", "--head-dim=64", "--seqlen=512,1024", "--causal"}));
  ASSERT_EQ(cases.size(), 4u);
  EXPECT_EQ(benchmark_name(cases[0], "k", Temperature::kCold), "fwd/k/fp16/d64/causal/b32_h32_s512/cold");
  EXPECT_EQ(benchmark_name(cases[3], "k", Temperature::kCold), "fwd/k/fp32/d64/causal/b16_h32_s1024/cold");
}

TEST(CaseSets, OptionsNarrowTheQuickSet) {
  const std::vector<Case> cases = gpu_cases(parse({"--quick", "--dtype=fp32", "--op=bwd"}));
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].dtype, CUFLASH_R_32F);
  EXPECT_EQ(cases[0].operation, CUFLASH_OP_BACKWARD);
}

TEST(CaseSets, ShapeReplacesTheGrid) {
  const std::vector<Case> cases = gpu_cases(parse({"--shape=2,8,4,100,200,64,32", "--op", "both", "--window=10,-1"}));
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(
      benchmark_name(cases[1], "k", Temperature::kCold), "bwd/k/bf16/d64_v32/window_l10_rinf/b2_h8_hk4_q100_k200/cold"
  );
}

TEST(CaseSets, OverheadAloneHasNoCases) {
  EXPECT_TRUE(gpu_cases(parse({"--op=overhead"})).empty());
  EXPECT_TRUE(host_cases(parse({"--op=overhead"})).empty());
}

TEST(Options, ReadsEveryForm) {
  const Options options = parse(
      {"--kernel",
       "scalar,naive",
       "--check",
       "--hot",
       "--cold",
       "--samples=5",
       "--max-seconds=0.5",
       "--out=x.json",
       "--commit=abc",
       "--cublas=lib.so",
       "--benchmark_filter=fwd"}
  );
  EXPECT_EQ(options.kernels, (std::vector<std::string>{"scalar", "naive"}));
  EXPECT_TRUE(options.check);
  EXPECT_EQ(options.temperatures, (std::vector<Temperature>{Temperature::kHot, Temperature::kCold}));
  EXPECT_EQ(options.samples, 5);
  EXPECT_DOUBLE_EQ(options.max_seconds, 0.5);
  EXPECT_EQ(options.out, "x.json");
  EXPECT_EQ(options.commit, "abc");
  EXPECT_EQ(options.cublas, "lib.so");
  EXPECT_EQ(options.google_benchmark, (std::vector<std::string>{"--benchmark_filter=fwd"}));
  EXPECT_EQ(parse({"--dry-run"}).mode, Options::Mode::kDryRun);
  EXPECT_DOUBLE_EQ(parse({}).max_seconds, 3.0);
  EXPECT_DOUBLE_EQ(parse({"--quick"}).max_seconds, 1.0);
}

TEST(Options, RefusesWithTheReason) {
  EXPECT_EQ(usage_error({"--kernle=x"}), "unknown option \"--kernle=x\"; --help lists the options");
  EXPECT_EQ(usage_error({"--out"}), "--out needs a value");
  EXPECT_EQ(usage_error({"--out="}), "--out needs a value");
  EXPECT_EQ(usage_error({"--dtype=fp8"}), "--dtype: \"fp8\" must be fp32, fp16 or bf16");
  EXPECT_EQ(usage_error({"--op=sideways"}), "--op: \"sideways\" must be fwd, bwd, both or overhead");
  EXPECT_EQ(usage_error({"--head-dim=512"}), "--head-dim: \"512\" must be a number from 1 to 256");
  EXPECT_EQ(usage_error({"--samples=2"}), "--samples: \"2\" must be a number from 3 to 10000");
  EXPECT_EQ(usage_error({"--shape=1,2,3"}), "--shape: \"1,2,3\" must be B,HQ,HK,SQ,SK,D or B,HQ,HK,SQ,SK,D,DV");
  EXPECT_EQ(usage_error({"--shape=1,3,2,8,8,64"}), "--shape: HQ (3) must be a multiple of HK (2)");
  EXPECT_EQ(usage_error({"--window=5"}), "--window: \"5\" must be LEFT,RIGHT");
  EXPECT_EQ(usage_error({"--shape=1,1,1,8,8,64", "--quick"}), "--shape and --quick exclude each other");
}

}  // namespace
}  // namespace cuflash::bench
