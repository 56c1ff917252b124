// SPDX-License-Identifier: MIT
// Data at the edges of the number formats, and where NaN and infinities may show.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "support/call.h"
#include "support/compare.h"
#include "support/conformance.h"
#include "support/target.h"

namespace cuflash::test {
namespace {

std::vector<Case> distribution_cases() {
  std::vector<Case> cases;
  for (const std::string op : {"fwd", "bwd"}) {
    for (const std::string dtype : {"fp32", "fp16", "bf16"}) {
      for (const std::string dist :
           {"normal", "huge", "low_lse", "one_huge", "equal", "denormal", "zero", "positive", "large"}) {
        const std::string line = "op=" + op + " dtype=" + dtype + " b=2 h=2 dist=" + dist;
        cases.push_back(case_of(line + " hk=1 sq=65 sk=130 d=64"));
        cases.push_back(case_of(line + " hk=2 sq=129 sk=129 d=40 mask=causal dlse=1"));
        cases.push_back(case_of(line + " hk=2 sq=1 sk=97 d=128 mask=window wl=30 wr=0 softcap=20"));
      }
    }
  }
  return cases;
}

TEST(NumericsTest, Distributions) { expect_conformance(distribution_cases()); }

// Where the allowed error reaches the values themselves the comparison says nothing. Few rows may be so, but for
// gradients that vanish by their definition.
struct Vanishing {
  Distribution distribution;
  std::string tensors;
  bool (*applies)(const Case&);
  const char* reason;
};

constexpr double kMostVacuous = 1.0 / 16;

const Vanishing kVanishing[] = {
    {Distribution::kHuge, "dq dk", [](const Case&) { return true; }, "the weights of most rows are 0 and 1"},
    {Distribution::kLowLse, "dq dk", [](const Case& c) { return c.softcap > 0; }, "softcap is flat at -200"},
    {Distribution::kEqual, "dq", [](const Case& c) { return !c.dlse; }, "dq is a sum of ds, which is 0, times one k"},
    {Distribution::kLarge,
     "dq",
     [](const Case& c) { return !c.dlse; },
     "the large element of k meets a sum of ds, which is 0"},
    {Distribution::kDenormal, "dq dk", [](const Case&) { return true; }, "a few of the smallest numbers"}};

const Vanishing* vanishing(const Case& c, const std::string& tensor) {
  const auto* found = std::find_if(std::begin(kVanishing), std::end(kVanishing), [&](const Vanishing& v) {
    return v.distribution == c.distribution && v.tensors.find(tensor) != std::string::npos && v.applies(c);
  });
  return found == std::end(kVanishing) ? nullptr : found;
}

TEST(NumericsTest, ZerosWouldNotPassAsResults) {
  std::set<std::string> judged;
  std::set<const Vanishing*> needed;
  for (const Case& c : distribution_cases()) {
    const Prepared prepared = prepare(c);
    const auto check = [&](const std::string& tensor, const Vacuity& vacuity) {
      const double most = kMostVacuous * static_cast<double>(vacuity.rows);
      const bool vacuous = static_cast<double>(vacuity.vacuous) > most;
      if (!vacuous && vacuity.rows > 0) judged.insert(tensor);
      if (!vacuous) return;
      const Vanishing* excuse = vanishing(c, tensor);
      needed.insert(excuse);
      EXPECT_NE(excuse, nullptr) << vacuity.vacuous << " of " << vacuity.rows << " rows of " << tensor << ", "
                                 << to_string(c);
    };
    for_each_output(
        prepared.scenario,
        prepared.reference,
        [&](const char* name, const View&, const Side&, const Expected& expected) {
          check(name, vacuity_of(expected, c.dtype));
        }
    );
    if (c.op == Op::kForward) check("lse", vacuity_of(prepared.reference.lse, DType::kFp32));
  }
  EXPECT_EQ(judged, (std::set<std::string>{"o", "lse", "dq", "dk", "dv"}));
  for (const Vanishing& v : kVanishing) EXPECT_EQ(needed.count(&v), 1u) << v.tensors << ": no longer so: " << v.reason;
}

// NaN or infinity in one row of one tensor: the reference, which touches visible elements only, says who must show it.
struct Injection {
  const char* name;
  Op op;
  View Geometry::*view;
  bool into_keys;  // the row is a key row
  float value;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr Injection kInjections[] = {
    {"NaN in q", Op::kForward, &Geometry::tensor_q, false, kNan},
    {"NaN in k", Op::kForward, &Geometry::tensor_k, true, kNan},
    {"NaN in v", Op::kForward, &Geometry::tensor_v, true, kNan},
    {"infinity in v", Op::kForward, &Geometry::tensor_v, true, kInfinity},
    {"-infinity in v", Op::kForward, &Geometry::tensor_v, true, -kInfinity},
    {"infinity in k", Op::kForward, &Geometry::tensor_k, true, kInfinity},
    {"NaN in q", Op::kBackward, &Geometry::tensor_q, false, kNan},
    {"NaN in k", Op::kBackward, &Geometry::tensor_k, true, kNan},
    {"NaN in v", Op::kBackward, &Geometry::tensor_v, true, kNan},
    {"NaN in dout", Op::kBackward, &Geometry::tensor_dout, false, kNan}};

void inject(const Injection& injection, Scenario* scenario) {
  constexpr int32_t kEntry = 1, kRow = 33, kHead = 1;
  const View& view = scenario->geometry.*injection.view;
  const Side& side = injection.into_keys ? scenario->geometry.k : scenario->geometry.q;
  std::byte* row = scenario->data(view, side.entries[kEntry].batch, side.entries[kEntry].first + kRow, kHead);
  for (int32_t e = 0; e < view.dim; ++e) {
    store(scenario->c.dtype, row + static_cast<size_t>(e) * size_of(scenario->c.dtype), injection.value);
  }
}

TEST(NumericsTest, NanAndInfinityReachOnlyRowsThatSeeThem) {
  int cases = 0;
  for (const Injection& injection : kInjections) {
    for (const DType dtype : kAllDTypes) {
      for (const std::string mask : {"mask=causal", "mask=window wl=10 wr=4", "mask=causal packed_q=1 packed_k=1"}) {
        Case c = case_of("b=2 h=4 hk=2 sq=70 sk=70 d=32 lengths_q=60,70 lengths_k=50,70 " + mask);
        c.op = injection.op;
        c.dtype = dtype;
        Prepared prepared = prepare(c);
        inject(injection, &prepared.scenario);
        prepared.reference = make_reference(prepared.scenario);
        for (const Kernel& kernel : kernels_of(c.op, target().device())) {
          bool accepted = false;
          const std::string failure = check_kernel(prepared, kernel.name, &accepted);
          EXPECT_EQ(failure, "") << injection.name << " (the line repeats the case without it)";
          cases += accepted ? 1 : 0;
        }
      }
    }
  }
  RecordProperty("cases", cases);
  EXPECT_GE(cases, 90);
}

// Scores of -inf: q is positive, and -inf stands in one key row or in all of them. Their weights are 0, which shows in
// o and lse; dq is NaN by 0 * inf where a row sees such a key.
void expect_right_with_infinite_keys(const std::string& shape, const std::vector<int32_t>& keys, double lse_of_last) {
  for (const Op op : {Op::kForward, Op::kBackward}) {
    for (const DType dtype : kAllDTypes) {
      Case c = case_of("h=2 hk=1 sk=70 d=32 dist=positive " + shape);
      c.op = op;
      c.dtype = dtype;
      Scenario scenario = make_scenario(c);
      for (const int32_t key : keys) {
        std::byte* row = scenario.data(scenario.geometry.tensor_k, 0, key, 0);
        for (int32_t e = 0; e < c.head_dim; ++e) {
          store(dtype, row + static_cast<size_t>(e) * size_of(dtype), -kInfinity);
        }
      }
      if (op == Op::kBackward) fill_forward_results(&scenario);
      const Prepared prepared{scenario, make_reference(scenario)};
      if (op == Op::kForward) {
        for (const double o : prepared.reference.o.value) ASSERT_TRUE(std::isfinite(o));
        for (const double allowed : prepared.reference.o.allowed) ASSERT_TRUE(std::isfinite(allowed));
        const double lse = prepared.reference.lse.value.back();
        ASSERT_TRUE(std::isinf(lse_of_last) ? lse == lse_of_last : std::isfinite(lse)) << lse;
      }
      for (const Kernel& kernel : kernels_of(op, target().device())) {
        bool accepted = false;
        EXPECT_EQ(check_kernel(prepared, kernel.name, &accepted), "") << "with -inf in " << keys.size() << " keys";
        EXPECT_TRUE(accepted) << kernel.name;
      }
    }
  }
}

TEST(NumericsTest, AKeyOfMinusInfinityHasNoWeight) {
  for (const int32_t key : {0, 33, 69}) {
    expect_right_with_infinite_keys("sq=70 mask=none", {key}, 0);
    expect_right_with_infinite_keys("sq=70 mask=window wl=10 wr=4", {key}, 0);
  }
}

// The first row of the causal case sees one key, of -inf: it is empty, the others are not.
TEST(NumericsTest, ARowOfOnlyMinusInfinityIsEmpty) {
  std::vector<int32_t> all(70);
  std::iota(all.begin(), all.end(), 0);
  expect_right_with_infinite_keys("sq=9 mask=none", all, -kInfinity);
  expect_right_with_infinite_keys("sq=70 mask=causal", all, -kInfinity);
  expect_right_with_infinite_keys("sq=70 mask=causal", {0}, 0);
}

}  // namespace
}  // namespace cuflash::test
