// SPDX-License-Identifier: MIT
// Small shapes with every feature for compute-sanitizer: each buffer is an allocation of exactly its size and the
// workspace is not initialised, so that memcheck sees the ends of buffers and initcheck what was never written.
#include <gtest/gtest.h>

#include "support/cases.h"
#include "support/conformance.h"

namespace cuflash::test {
namespace {

constexpr const char* kLines[] = {
    "b=1 h=1 hk=1 sq=1 sk=1 d=1",
    "b=2 h=2 hk=1 sq=17 sk=33 d=16",
    "b=2 h=2 hk=2 sq=33 sk=17 d=40 mask=causal dlse=1",
    "b=1 h=2 hk=2 sq=65 sk=65 d=64 mask=causal det=1",
    "b=1 h=4 hk=2 sq=20 sk=20 d=72 mask=window wl=5 wr=2",
    "b=2 h=1 hk=1 sq=20 sk=9 d=33 mask=causal align=top_left alibi=head",
    "b=3 h=2 hk=1 sq=12 sk=12 d=128 packed_q=1 packed_k=1 geo=2",
    "b=3 h=2 hk=1 sq=12 sk=30 d=24 packed_q=1 packed_k=1 used_q=1 used_k=1 alibi=batch geo=4",
    "b=2 h=2 hk=2 sq=15 sk=15 d=32 layout=unaligned softcap=3",
    "b=2 h=2 hk=1 sq=15 sk=15 d=32 layout=packed det=1",
    "b=2 h=2 hk=2 sq=11 sk=23 d=48 dv=80 layout=padded scale=-0.2",
    "b=1 h=2 hk=1 sq=9 sk=19 d=256 dv=8 layout=broadcast lse=0",
    "b=1 h=1 hk=1 sq=130 sk=5 d=8 mask=causal",
    "b=1 h=1 hk=1 sq=3 sk=140 d=104 used_k=1 geo=7"};

// 14 lines, 3 dtypes and 2 directions: 84 cases.
TEST(Sanitizer, EveryFeatureOnSmallShapes) {
  std::vector<Case> cases;
  for (const Op op : {Op::kForward, Op::kBackward}) {
    for (const DType dtype : kAllDTypes) {
      for (const char* line : kLines) {
        Case c = case_of(line);
        c.op = op;
        c.dtype = dtype;
        cases.push_back(c);
      }
    }
  }
  expect_conformance(cases, Placement::kExact);
}

}  // namespace
}  // namespace cuflash::test
