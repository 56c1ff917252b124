// SPDX-License-Identifier: MIT
// Bitwise repeatability while another stream disturbs: forward, and backward with `deterministic`.
#include <gtest/gtest.h>

#include "kernel_cases.h"
#include "stream.h"

namespace cuflash::test {
namespace {

std::vector<std::string> configurations() {
  // At each head_dim capacity that kernels have, and between them.
  constexpr int32_t kHeadDims[] = {17, 64, 72, 128, 192, 256, 32, 40, 80, 96, 104, 112, 120, 160, 8, 255};
  constexpr int32_t kCount[4] = {2, 6, 16, 16};
  std::vector<std::string> lines;
  for (int32_t i = 0; i < by_level(kCount); ++i) {
    const std::string d = " d=" + std::to_string(kHeadDims[i]);
    lines.push_back("b=2 h=4 hk=2 sq=150 sk=210" + d);
    lines.push_back("b=2 h=2 hk=2 sq=140 sk=140 mask=causal" + d);
    lines.push_back("b=4 h=2 hk=1 sq=100 sk=100 packed_q=1 packed_k=1 mask=window wl=40 wr=0 alibi=head geo=5" + d);
  }
  return lines;
}

TEST(DeterminismTest, RepeatsAreEqualUnderLoad) {
  constexpr int kForwardRepeats = 250, kBackwardRepeats = 100;
  const std::vector<KernelCase> cases = kernel_cases(configurations());
  Stream stream, disturbing;
  OwnExecution load(cases.front());
  for (const KernelCase& kernel_case : cases) {
    OwnExecution own(kernel_case);
    const int repeats = kernel_case.scenario.c.op == Op::kForward ? kForwardRepeats : kBackwardRepeats;
    for (int i = 0; i < repeats; ++i) {
      load.enqueue(disturbing);
      own.enqueue(stream);
      if (i % 2 == 0) load.enqueue(disturbing);
      stream.finish();
      const std::string wrong = own.check();
      ASSERT_EQ(wrong, "") << "repeat " << i;
    }
    disturbing.finish();
  }
  RecordProperty("configurations", static_cast<int>(cases.size()));
  std::printf("configurations: %zu\n", cases.size());
}

}  // namespace
}  // namespace cuflash::test
