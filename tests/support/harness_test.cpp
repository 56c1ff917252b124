// SPDX-License-Identifier: MIT
// The harness itself: cases survive printing, random cases reach everything, and faults of the kinds that kernels have
// had are noticed. The faults are put into right answers, so that a harness that accepts anything fails here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "call.h"
#include "cases.h"
#include "compare.h"
#include "conformance.h"
#include "target.h"

namespace cuflash::test {
namespace {

TEST(CaseTest, DefaultPrintsShapeAndTypeOnly) {
  EXPECT_EQ(to_string(Case()), "op=fwd dtype=fp32 b=1 h=1 hk=1 sq=1 sk=1 d=1 mask=none");
}

TEST(CaseTest, PrintsAndParsesEveryField) {
  Case c;
  c.op = Op::kBackward;
  c.dtype = DType::kBf16;
  c.batch = 4;
  c.heads = 6;
  c.heads_k = 2;
  c.seqlen_q = 5;
  c.seqlen_k = 7;
  c.head_dim = 72;
  c.head_dim_v = 40;
  c.mask = Mask::kWindow;
  c.align = Align::kTopLeft;
  c.window_left = -1;
  c.window_right = 3;
  c.scale = -0.1f;
  c.softcap = 1.0f / 3.0f;
  c.alibi = Alibi::kPerEntry;
  c.packed_q = c.packed_k = c.used_q = c.used_k = c.dlse = c.deterministic = true;
  c.lse = false;
  c.lengths_q = {0, 1, 0, 1};
  c.lengths_k = {0, 3, 0, 5};
  c.layout = Layout::kPadded;
  c.distribution = Distribution::kLowLse;
  c.geometry_seed = 12;
  c.data_seed = 4'000'000'000;
  EXPECT_EQ(case_of(to_string(c)), c) << to_string(c);
}

TEST(CaseTest, RandomAndGridCasesComeBackFromTheirLines) {
  for (uint64_t seed = 0; seed < 2'000; ++seed) {
    const Case c = random_case(seed);
    ASSERT_EQ(case_of(to_string(c)), c) << to_string(c);
  }
  for (const Case& c : grid_cases(Op::kBackward, DType::kFp16, 1)) ASSERT_EQ(case_of(to_string(c)), c);
}

TEST(CaseTest, RefusesWhatItDoesNotKnow) {
  Case c;
  std::string error;
  for (const char* line :
       {"colour=red", "d=", "d=1.5", "d=9999999999", "dtype=fp64", "packed_q=2", "op", "lengths_q=1,x"}) {
    EXPECT_FALSE(parse_case(line, &c, &error)) << line;
    EXPECT_NE(error.find(line), std::string::npos) << error;
  }
}

TEST(CasesTest, GridHasEveryHeadDimWithEveryMaskAndEveryLength) {
  const std::vector<Case> cases = grid_cases(Op::kForward, DType::kFp32, 1);
  std::set<std::tuple<int32_t, Mask, Align>> masks;
  std::set<std::pair<int32_t, int32_t>> lengths;
  std::set<std::tuple<int32_t, int32_t, Mask>> lengths_and_masks;
  std::set<std::pair<int32_t, int32_t>> dims_and_groups;
  for (const Case& c : cases) {
    masks.insert({c.head_dim, c.mask, c.align});
    lengths.insert({c.seqlen_q, c.seqlen_k});
    lengths_and_masks.insert({c.seqlen_q, c.seqlen_k, c.mask});
    dims_and_groups.insert({c.head_dim, c.heads / c.heads_k});
  }
  EXPECT_EQ(cases.size(), 792u);
  EXPECT_EQ(masks.size(), 22u * 5u);  // two of the six masks are windows with the same alignment
  EXPECT_EQ(lengths.size(), 23u);
  EXPECT_EQ(lengths_and_masks.size(), 23u * 3u);
  EXPECT_EQ(dims_and_groups.size(), 22u * 3u);
}

TEST(CasesTest, FiveHundredRandomCasesReachEverything) {
  std::set<std::string> words;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Case c = random_case(seed);
    const std::string line = to_string(c);
    for (size_t begin = 0; begin < line.size();) {
      const size_t end = std::min(line.find(' ', begin), line.size());
      words.insert(line.substr(begin, end - begin));
      begin = end + 1;
    }
    words.insert(c.heads_k == c.heads ? "is_mha" : c.heads_k == 1 ? "is_mqa" : "is_gqa");
    if (c.scale < 0) words.insert("is_negative_scale");
    if (c.value_dim() != c.head_dim) words.insert("is_other_value_dim");
    if (c.seqlen_q > c.seqlen_k) words.insert("is_longer_q");
    if (c.softcap > 0) words.insert("is_softcap");
  }
  for (const char* word :
       {"op=fwd",
        "op=bwd",
        "dtype=fp32",
        "dtype=fp16",
        "dtype=bf16",
        "mask=none",
        "mask=causal",
        "mask=window",
        "align=top_left",
        "alibi=head",
        "alibi=batch",
        "packed_q=1",
        "packed_k=1",
        "used_q=1",
        "used_k=1",
        "layout=bhsd",
        "layout=packed",
        "layout=padded",
        "layout=broadcast",
        "layout=unaligned",
        "lse=0",
        "dlse=1",
        "det=1",
        "dist=huge",
        "dist=low_lse",
        "dist=one_huge",
        "dist=last_huge",
        "dist=rising",
        "dist=alternating",
        "dist=ties",
        "dist=equal",
        "dist=equal_huge",
        "dist=balanced",
        "dist=cancelling",
        "dist=denormal",
        "dist=zero",
        "dist=positive",
        "wl=-1",
        "wr=-1",
        "is_mha",
        "is_gqa",
        "is_mqa",
        "is_negative_scale",
        "is_other_value_dim",
        "is_longer_q",
        "is_softcap",
        "sq=0",
        "sk=0"}) {
    EXPECT_EQ(words.count(word), 1u) << word;
  }
}

// The image after a call with some other parameters or inputs.
std::vector<std::byte> answer(const Scenario& scenario, void (*change)(Scenario*)) {
  Scenario changed = scenario;
  change(&changed);
  const std::unique_ptr<Memory> memory = target().open();
  Execution execution(changed, kernels_of(scenario.c.op, target().device()).front().name, *memory);
  EXPECT_EQ(execution.accepted(), CUFLASH_STATUS_SUCCESS);
  EXPECT_EQ(execution.run(), CUFLASH_STATUS_SUCCESS);
  return execution.read();
}

// -inf in all elements of a key row.
void set_key(Scenario* scenario, int32_t key) {
  std::byte* row = scenario->data(scenario->geometry.tensor_k, 0, key, 0);
  for (int32_t e = 0; e < scenario->c.head_dim; ++e) {
    const DType dtype = scenario->c.dtype;
    store(dtype, row + static_cast<size_t>(e) * size_of(dtype), -std::numeric_limits<float>::infinity());
  }
}

struct Fault {
  const char* name;
  void (*change)(Scenario*);
};

constexpr Fault kFaults[] = {
    {"mask off by one", [](Scenario* s) { s->c.window_right = 1; }},
    {"window one short", [](Scenario* s) { s->c.window_left -= 1; }},
    {"other alignment", [](Scenario* s) { s->c.align = Align::kTopLeft; }},
    {"scale off by three per cent", [](Scenario* s) { s->c.scale = 1.03f / 8; }},
    {"no softcap", [](Scenario* s) { s->c.softcap = 0; }},
    {"no ALiBi", [](Scenario* s) { std::fill_n(s->floats(Buffer::kAlibi), 4, 0.0f); }},
    {"wrong key heads", [](Scenario* s) { s->c.heads_k = 1; }},
    {"last column of the head skipped", [](Scenario* s) {
       s->c.head_dim = 63;
       s->c.scale = 0.125f;
     }}};

// A case with everything that a fault can touch. lse=0: o alone must show them, although lse shows them more clearly.
Case sensitive_case(Op op, DType dtype) {
  Case c = case_of("op=fwd b=2 h=4 hk=2 sq=70 sk=100 d=64 dv=64 mask=window wl=20 wr=0 softcap=5 alibi=head lse=0");
  c.op = op;
  c.dtype = dtype;
  return c;
}

TEST(HarnessTest, NoticesFaults) {
  for (const Op op : {Op::kForward, Op::kBackward}) {
    for (const DType dtype : kAllDTypes) {
      const Prepared prepared = prepare(sensitive_case(op, dtype));
      const std::vector<std::byte> right = answer(prepared.scenario, [](Scenario*) {});
      ASSERT_EQ(compare_values(prepared.scenario, prepared.reference, right), "");
      for (const Fault& fault : kFaults) {
        const std::vector<std::byte> wrong = answer(prepared.scenario, fault.change);
        EXPECT_NE(compare_values(prepared.scenario, prepared.reference, wrong), "")
            << fault.name << ", " << to_string(prepared.scenario.c);
      }
    }
  }
}

TEST(HarnessTest, NoticesOneWrongElementRowAndColumn) {
  const Prepared prepared = prepare(sensitive_case(Op::kForward, DType::kBf16));
  const Scenario& scenario = prepared.scenario;
  const std::vector<std::byte> right = answer(scenario, [](Scenario*) {});
  const auto element = [&](std::vector<std::byte>& image, int32_t row, int32_t e) {
    const Geometry& g = scenario.geometry;
    return image.data() + g.segment(Buffer::kO).offset + 2 * static_cast<size_t>(g.tensor_o.offset(1, row, 3) + e);
  };
  std::vector<std::byte> wrong = right;
  store(DType::kBf16, element(wrong, 69, 63), load(DType::kBf16, element(wrong, 69, 63)) + 0.1f);
  EXPECT_NE(
      compare_values(scenario, prepared.reference, wrong).find("o[batch 1, head 3, row 69, element 63]"),
      std::string::npos
  ) << compare_values(scenario, prepared.reference, wrong);

  wrong = right;  // the last row not written
  std::memcpy(element(wrong, 69, 0), scenario.data(scenario.geometry.tensor_o, 1, 69, 3), 2 * 64);
  EXPECT_NE(compare_values(scenario, prepared.reference, wrong), "");

  wrong = right;  // a stale column: its value is that of the row before
  for (int32_t row = 1; row < 70; ++row) std::memcpy(element(wrong, row, 63), element(wrong, row - 1, 63), 2);
  EXPECT_NE(compare_values(scenario, prepared.reference, wrong), "");

  wrong = right;
  store(DType::kBf16, element(wrong, 0, 0), std::numeric_limits<float>::quiet_NaN());
  EXPECT_NE(compare_values(scenario, prepared.reference, wrong), "");
}

// A key of -inf leaves finite values, and these are compared: an allowance that is NaN would accept any.
TEST(HarnessTest, NoticesWrongValuesBesideAKeyOfMinusInfinity) {
  Scenario scenario = make_scenario(case_of("op=fwd dtype=fp32 sq=3 sk=4 d=8 dist=positive"));
  for (const bool all : {false, true}) {
    for (int32_t key = 0; key < (all ? 4 : 1); ++key) set_key(&scenario, key);
    const Prepared prepared{scenario, make_reference(scenario)};
    for (size_t row = 0; row < 3; ++row) {
      const float lse = static_cast<float>(prepared.reference.lse.value[row]);
      EXPECT_EQ(lse == -std::numeric_limits<float>::infinity(), all);
      EXPECT_TRUE(std::isfinite(prepared.reference.o.allowed[row]));
      if (all) {
        EXPECT_EQ(prepared.reference.o.value[row * 8], 0.0);
      }
    }
    const std::vector<std::byte> right = answer(scenario, [](Scenario*) {});
    EXPECT_EQ(compare_values(scenario, prepared.reference, right), "");
    std::vector<std::byte> wrong = right;
    const float number = 12345.0f;
    std::memcpy(wrong.data() + scenario.geometry.segment(Buffer::kO).offset, &number, sizeof(number));
    EXPECT_NE(compare_values(scenario, prepared.reference, wrong).find("o[batch 0, head 0, row 0"), std::string::npos);
    wrong = right;
    std::memcpy(wrong.data() + scenario.geometry.segment(Buffer::kLse).offset, &number, sizeof(number));
    EXPECT_NE(compare_values(scenario, prepared.reference, wrong).find("lse[batch 0"), std::string::npos);
  }
}

TEST(HarnessTest, AcceptsNothingFiniteWithoutAnAllowance) {
  Prepared prepared = prepare(case_of("op=fwd dtype=fp32 sq=3 sk=4 d=8"));
  const std::vector<std::byte> right = answer(prepared.scenario, [](Scenario*) {});
  for (const double allowed : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    prepared.reference.o.allowed[2] = allowed;
    EXPECT_NE(compare_values(prepared.scenario, prepared.reference, right).find("row 2"), std::string::npos);
  }
}

TEST(HarnessTest, KnowsRowsThatZerosWouldPass) {
  const Expected expected{2, {1.0, -3.0, 1.0, -3.0, 0.0, 0.0, 1e-300, 0.0, 0.5, 0.25}, {2.9, 3.0, 1.0, 1.0, HUGE_VAL}};
  const Vacuity vacuity = vacuity_of(expected, DType::kFp32);
  EXPECT_EQ(vacuity.rows, 3);
  EXPECT_EQ(vacuity.vacuous, 2);
}

TEST(HarnessTest, NoticesEveryByteThatIsNotAnOutput) {
  const Prepared prepared =
      prepare(case_of("op=fwd dtype=fp16 b=2 h=2 hk=1 sq=9 sk=5 d=8 layout=padded used_q=1 geo=5"));
  const std::vector<std::byte> right = answer(prepared.scenario, [](Scenario*) {});
  ASSERT_EQ(compare_guards(prepared.scenario, right), "");
  std::vector<std::byte> zeros = prepared.scenario.image, ones = prepared.scenario.image;
  std::fill(zeros.begin(), zeros.end(), std::byte{0});
  std::fill(ones.begin(), ones.end(), std::byte{1});
  const std::vector<std::byte> outputs_zero = results_only(prepared.scenario, zeros);
  const std::vector<std::byte> outputs_one = results_only(prepared.scenario, ones);
  size_t outputs = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    if (outputs_zero[i] != outputs_one[i]) {
      ++outputs;
    } else if (i % 7 == 0) {  // a full comparison each: every seventh byte keeps this short
      std::vector<std::byte> wrong = right;
      wrong[i] ^= std::byte{0x10};
      ASSERT_NE(compare_guards(prepared.scenario, wrong), "") << i;
    }
  }
  const auto rows = static_cast<size_t>(prepared.scenario.geometry.q.used_rows * prepared.scenario.c.heads);
  EXPECT_EQ(outputs, rows * (8 * 2 + 4));
}

TEST(HarnessTest, NamesTheChangedBuffer) {
  const Scenario scenario = make_scenario(case_of("op=bwd dtype=bf16 b=1 h=1 hk=1 sq=4 sk=4 d=8"));
  std::vector<std::byte> image = scenario.image;
  image[scenario.geometry.segment(Buffer::kDk).offset + scenario.geometry.segment(Buffer::kDk).bytes] = std::byte{0};
  EXPECT_NE(compare_guards(scenario, image).find("byte 64 of the buffer of dk"), std::string::npos)
      << compare_guards(scenario, image);
}

}  // namespace
}  // namespace cuflash::test
