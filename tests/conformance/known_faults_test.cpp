// SPDX-License-Identifier: MIT
// Real faults of other attention libraries, each in its smallest form. Those of a kernel's device are in
// tests/host/known_faults_host_test.cpp; the batch stride of 2^30 needs its own memory: tests/gpu/big_test.cpp.
#include <gtest/gtest.h>

#include <cstring>

#include "support/call.h"
#include "support/conformance.h"
#include "support/target.h"

namespace cuflash::test {
namespace {

constexpr const char* kDTypes[] = {"fp32", "fp16", "bf16"};

// Runs each line with every dtype and the given directions.
void expect_right(const std::vector<std::string>& lines, const std::vector<std::string>& ops = {"fwd", "bwd"}) {
  std::vector<std::string> all;
  for (const std::string& op : ops) {
    for (const std::string dtype : kDTypes) {
      for (const std::string& line : lines) all.push_back("op=" + op + " dtype=" + dtype + " " + line);
    }
  }
  expect_conformance(all);
}

// ---- Masks and the softmax

TEST(KnownFaultsTest, RowsHiddenByMaskAndKeyLengthGiveNan) {
  expect_right(
      {"b=4 h=2 hk=2 sq=65 sk=64 d=40 mask=causal used_k=1 geo=3",
       "b=4 h=2 hk=2 sq=65 sk=64 d=40 mask=causal used_q=1 used_k=1 geo=4",
       "b=4 h=2 hk=1 sq=65 sk=64 d=40 mask=window wl=3 wr=0 used_k=1 geo=5",
       "b=2 h=2 hk=2 sq=200 sk=70 d=32 mask=causal",
       "b=2 h=2 hk=2 sq=5 sk=0 d=16",
       "b=2 h=2 hk=2 sq=5 sk=0 d=16 mask=causal softcap=1 alibi=head",
       "b=2 h=2 hk=2 sq=0 sk=5 d=16"}
  );
}

// Each row sees one key, so o is that key's v, bit for bit, however low the score: here to -1e30 and below, where any
// finite value for hidden keys would win, or hide the row's only key.
TEST(KnownFaultsTest, AFiniteMaskValueBeatsRealScores) {
  for (const std::string dtype : kDTypes) {
    const Prepared prepared =
        prepare(case_of("h=2 hk=2 sq=70 sk=70 d=32 mask=window wl=0 wr=0 scale=-1e30 dist=positive dtype=" + dtype));
    const Scenario& scenario = prepared.scenario;
    const Geometry& g = scenario.geometry;
    const size_t row_bytes = 32 * size_of(scenario.c.dtype);
    for (const Kernel& kernel : kernels_of(Op::kForward, target().device())) {
      bool accepted = false;
      EXPECT_EQ(check_kernel(prepared, kernel.name, &accepted), "");
      if (!accepted) continue;
      Scenario result = scenario;
      result.image = run_kernel(scenario, kernel.name);
      for (int32_t row = 0; row < 70; ++row) {
        EXPECT_EQ(std::memcmp(result.data(g.tensor_o, 0, row, 1), scenario.data(g.tensor_v, 0, row, 1), row_bytes), 0)
            << "row " << row << repro(scenario.c, kernel.name);
      }
    }
  }
  expect_right(
      {"h=2 hk=2 sq=70 sk=70 d=32 mask=causal dist=low_lse",
       "h=2 hk=2 sq=129 sk=129 d=64 mask=causal dist=large",
       "h=2 hk=2 sq=129 sk=129 d=64 mask=causal dist=equal_huge scale=-0.125"}
  );
}

TEST(KnownFaultsTest, RowMaximumResetAtTheSecondKeyBlockInCausal) {
  expect_right(
      {"b=2 h=2 hk=2 sq=129 sk=129 d=64 mask=causal",
       "b=2 h=2 hk=2 sq=193 sk=193 d=64 mask=causal",
       "b=2 h=2 hk=2 sq=257 sk=257 d=64 mask=causal",
       "b=1 h=2 hk=1 sq=257 sk=257 d=128 mask=causal dist=huge",
       "b=1 h=2 hk=1 sq=257 sk=257 d=64 mask=causal dist=falling",
       "b=1 h=1 hk=1 sq=1 sk=1025 d=32 mask=causal"}
  );
}

TEST(KnownFaultsTest, TopLeftTakenForBottomRight) {
  expect_right(
      {"b=1 h=1 hk=1 sq=2 sk=5 d=8 mask=causal",
       "b=1 h=1 hk=1 sq=2 sk=5 d=8 mask=causal align=top_left",
       "b=1 h=1 hk=1 sq=5 sk=2 d=8 mask=causal",
       "b=1 h=1 hk=1 sq=5 sk=2 d=8 mask=causal align=top_left",
       "b=2 h=2 hk=2 sq=70 sk=200 d=64 mask=causal",
       "b=2 h=2 hk=2 sq=70 sk=200 d=64 mask=causal align=top_left"}
  );
}

TEST(KnownFaultsTest, TheWindowOfCausalGivesZeros) {
  expect_right(
      {"b=2 h=2 hk=2 sq=129 sk=129 d=64 mask=window wl=-1 wr=0",
       "b=2 h=2 hk=1 sq=40 sk=100 d=64 mask=window wl=-1 wr=0",
       "b=2 h=2 hk=1 sq=100 sk=40 d=64 mask=window wl=-1 wr=0 align=top_left"}
  );
}

TEST(KnownFaultsTest, SoftcapOverflowsAtScoresOf1e3To1e4) {
  expect_right(
      {"b=1 h=2 hk=2 sq=65 sk=130 d=64 softcap=30 dist=huge",
       "b=1 h=2 hk=2 sq=65 sk=130 d=64 softcap=50 dist=huge mask=causal",
       "b=1 h=2 hk=2 sq=65 sk=130 d=64 softcap=1000 dist=huge",
       "b=1 h=2 hk=2 sq=65 sk=130 d=64 softcap=30 dist=large"}
  );
}

TEST(KnownFaultsTest, NanInDqWithHalfAFilledTileAndLowLse) {
  expect_right(
      {"b=1 h=2 hk=2 sq=64 sk=64 d=64 dist=low_lse",
       "b=2 h=2 hk=1 sq=192 sk=192 d=64 dist=low_lse mask=causal",
       "b=1 h=2 hk=2 sq=320 sk=100 d=128 dist=low_lse",
       "b=3 h=2 hk=2 sq=1 sk=190 d=128 dist=low_lse dlse=1"}
  );
}

// ---- Packed sequences

TEST(KnownFaultsTest, ZeroLengthsBetweenSequencesRefused) {
  expect_right(
      {"b=4 h=2 hk=2 sq=1 sk=5 d=32 packed_q=1 packed_k=1 lengths_q=0,1,0,1 lengths_k=0,3,0,5",
       "b=3 h=2 hk=2 sq=5 sk=5 d=32 packed_q=1 packed_k=1 lengths_q=0,0,0 lengths_k=0,0,0"}
  );
}

TEST(KnownFaultsTest, ZeroLengthsBeforeTheOnlySequenceRefused) {
  expect_right({"b=5 h=2 hk=1 sq=1 sk=1 d=32 packed_q=1 packed_k=1 lengths_q=0,0,0,0,1 lengths_k=0,0,0,0,1"});
}

TEST(KnownFaultsTest, OverProvisionedTilesReadPastCuSeqlens) {
  expect_right(
      {"b=3 h=2 hk=2 sq=500 sk=500 d=64 packed_q=1 packed_k=1 lengths_q=7,1,9 lengths_k=5,8,1",  // bound far above
       "b=3 h=2 hk=2 sq=4 sk=4 d=64 packed_q=1 packed_k=1 lengths_q=7,1,9 lengths_k=5,8,1",      // bound cuts
       "b=300 h=1 hk=1 sq=3 sk=3 d=16 packed_q=1 packed_k=1 geo=13"}
  );
}

TEST(KnownFaultsTest, TheSecondSequenceLeftUnwritten) {
  expect_right(
      {"b=2 h=2 hk=2 sq=130 sk=260 d=64 packed_q=1 packed_k=1 lengths_q=3,130 lengths_k=260,2 mask=causal",
       "b=2 h=2 hk=2 sq=2 sk=2000 d=64 packed_q=1 packed_k=1 lengths_q=1,2 lengths_k=2000,1999",
       "b=2 h=2 hk=1 sq=1 sk=3000 d=64"}
  );
}

// Rows of lse and of what a kernel keeps per row, behind the used ones: all of it is poison.
TEST(KnownFaultsTest, PaddingRowsOfLseAndDeltaReachDk) {
  expect_right(
      {"b=3 h=2 hk=2 sq=65 sk=65 d=64 geo=0",
       "b=3 h=2 hk=2 sq=65 sk=65 d=64 geo=1",
       "b=3 h=2 hk=1 sq=97 sk=40 d=64 used_q=1 geo=3",
       "b=3 h=2 hk=1 sq=97 sk=40 d=64 used_q=1 geo=4 mask=causal",
       "b=6 h=4 hk=2 sq=90 sk=90 d=64 packed_q=1 packed_k=1 used_q=1 used_k=1 mask=causal geo=11",
       "b=6 h=4 hk=2 sq=90 sk=90 d=64 packed_q=1 packed_k=1 used_q=1 layout=packed alibi=batch geo=12"},
      {"bwd"}
  );
}

// ---- Head dims and heads

TEST(KnownFaultsTest, StaleColumnsInBackwardAtHeadDim72) {
  expect_right({"b=2 h=2 hk=2 sq=70 sk=70 d=72", "b=2 h=2 hk=1 sq=129 sk=129 d=72 mask=causal dlse=1"}, {"bwd"});
}

TEST(KnownFaultsTest, StaleColumnsInBackwardAtHeadDim104) {
  expect_right({"b=2 h=2 hk=2 sq=70 sk=70 d=104", "b=2 h=2 hk=1 sq=129 sk=129 d=104 mask=causal dlse=1"}, {"bwd"});
}

TEST(KnownFaultsTest, QueryDim128WithValueDim64Refused) {
  expect_right(
      {"b=2 h=2 hk=2 sq=70 sk=70 d=128 dv=64",
       "b=2 h=2 hk=2 sq=70 sk=70 d=192 dv=128 mask=causal",
       "b=2 h=2 hk=2 sq=70 sk=70 d=64 dv=256",
       "b=2 h=2 hk=2 sq=70 sk=70 d=1 dv=256"}
  );
}

TEST(KnownFaultsTest, GroupedBackwardAtHeadDim256WrongInABatch) {
  expect_right({"b=3 h=4 hk=2 sq=70 sk=70 d=256", "b=3 h=4 hk=2 sq=70 sk=70 d=256 mask=causal"}, {"bwd"});
}

TEST(KnownFaultsTest, QueryHeadsMappedToWrongKeyHeads) {
  expect_right(
      {"b=1 h=8 hk=2 sq=9 sk=9 d=16",
       "b=2 h=12 hk=4 sq=9 sk=9 d=16 mask=causal",
       "b=1 h=40 hk=5 sq=3 sk=17 d=16",
       "b=1 h=64 hk=1 sq=2 sk=33 d=16",
       "b=2 h=6 hk=3 sq=9 sk=9 d=16 layout=packed"}
  );
}

// ---- Extents

// One line in each direction: the reference, not the kernels, takes its time.
void expect_right_in_bf16(const std::string& line) {
  expect_conformance({"op=fwd dtype=bf16 " + line, "op=bwd dtype=bf16 " + line});
}

TEST(KnownFaultsTest, HeadsAbove65535FailToLaunch) { expect_right_in_bf16("b=1 h=71280 hk=71280 sq=2 sk=3 d=8"); }

TEST(KnownFaultsTest, SequencesAbove65535FailToLaunch) {
  expect_right_in_bf16("b=80000 h=1 hk=1 sq=3 sk=3 d=8 packed_q=1 packed_k=1");
}

TEST(KnownFaultsTest, KeysAbove32767OverflowA16BitCount) {
  expect_right({"b=1 h=1 hk=1 sq=2 sk=33728 d=64", "b=1 h=1 hk=1 sq=2 sk=33728 d=64 mask=causal"});
}

TEST(KnownFaultsTest, NanInFp32BackwardOf2700ShortEntries) {
  expect_conformance(
      {"op=bwd dtype=fp32 b=2700 h=1 hk=1 sq=3 sk=3 d=16",
       "op=bwd dtype=fp32 b=2700 h=2 hk=1 sq=1 sk=5 d=64 mask=causal",
       "op=bwd dtype=fp32 b=2700 h=1 hk=1 sq=7 sk=7 d=32 mask=causal dist=low_lse"}
  );
}

// ---- Repeatability

TEST(KnownFaultsTest, DeterministicRunsThatDiffer) {
  for (const std::string line :
       {"b=2 h=4 hk=2 sq=193 sk=193 d=64 mask=causal",
        "b=1 h=2 hk=1 sq=65 sk=300 d=256",
        "b=2 h=2 hk=2 sq=300 sk=3 d=40"}) {
    for (const std::string dtype : kDTypes) {
      const Scenario scenario = prepare(case_of("op=bwd det=1 dtype=" + dtype + " " + line)).scenario;
      for (const Kernel& kernel : kernels_of(Op::kBackward, target().device())) {
        if (!accepts(scenario, kernel.name)) continue;
        const std::vector<std::byte> first = run_kernel(scenario, kernel.name);
        for (int repeat = 0; repeat < 20; ++repeat) {
          ASSERT_EQ(run_kernel(scenario, kernel.name), first) << "repeat " << repeat << repro(scenario.c, kernel.name);
        }
      }
    }
  }
}

}  // namespace
}  // namespace cuflash::test
