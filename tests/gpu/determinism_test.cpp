// SPDX-License-Identifier: MIT
// Bitwise repeatability while another stream disturbs: forward, and backward with `deterministic`.
#include <gtest/gtest.h>

#include <map>

#include "kernel_cases.h"
#include "stream.h"

namespace cuflash::test {
namespace {

// With each dtype and both directions: 108 configurations of a kernel that serves them all, at the default level.
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

// What disturbs is another kernel or direction where there is one, and another shape in any case.
void expect_repeats_equal(const KernelCase& kernel_case, const KernelCase& other) {
  constexpr int kForwardRepeats = 250, kBackwardRepeats = 100;
  Stream stream, disturbing;
  OwnExecution own(kernel_case), load(other);
  const int repeats = kernel_case.kernel.op == Op::kForward ? kForwardRepeats : kBackwardRepeats;
  for (int i = 0; i < repeats; ++i) {
    load.enqueue(disturbing);
    own.enqueue(stream);
    if (i % 2 == 0) load.enqueue(disturbing);
    stream.finish();
    ASSERT_EQ(own.check_outputs(), "") << "repeat " << i;
  }
  disturbing.finish();
  ASSERT_EQ(own.check(), "");
  ASSERT_EQ(load.check(), "");
}

TEST(DeterminismTest, RepeatsAreEqualUnderLoad) {
  const std::vector<KernelCase> cases = kernel_cases(configurations());
  std::map<std::string, int> configurations;  // of each kernel
  for (size_t i = 0; i < cases.size() && !HasFatalFailure(); ++i) {
    expect_repeats_equal(cases[i], cases[(i + cases.size() / 2 + 1) % cases.size()]);
    ++configurations[cases[i].kernel.name];
  }
  for (const auto& [name, count] : configurations) std::printf("%s: %d configurations\n", name.c_str(), count);
  RecordProperty("configurations", static_cast<int>(cases.size()));
  EXPECT_GE(cases.size(), test_level() > 0 ? 100u : 36u);
}

}  // namespace
}  // namespace cuflash::test
