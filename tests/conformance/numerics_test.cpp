// SPDX-License-Identifier: MIT
// Data at the edges of the number formats, and where NaN and infinities may show.
#include <gtest/gtest.h>

#include <limits>

#include "support/call.h"
#include "support/conformance.h"
#include "support/target.h"

namespace cuflash::test {
namespace {

TEST(NumericsTest, Distributions) {
  std::vector<std::string> lines;
  for (const std::string op : {"fwd", "bwd"}) {
    for (const std::string dtype : {"fp32", "fp16", "bf16"}) {
      for (const std::string dist :
           {"normal", "huge", "low_lse", "one_huge", "equal", "denormal", "zero", "positive", "large"}) {
        if (dist == "large" && dtype == "fp16") continue;  // gradients of a million are infinite in fp16
        const std::string line = "op=" + op + " dtype=" + dtype + " b=2 h=2 dist=" + dist;
        lines.push_back(line + " hk=1 sq=65 sk=130 d=64");
        lines.push_back(line + " hk=2 sq=129 sk=129 d=40 mask=causal dlse=1");
        lines.push_back(line + " hk=2 sq=1 sk=97 d=128 mask=window wl=30 wr=0 softcap=20");
      }
    }
  }
  expect_conformance(lines);
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

}  // namespace
}  // namespace cuflash::test
