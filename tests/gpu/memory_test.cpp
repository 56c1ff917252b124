// SPDX-License-Identifier: MIT
// A call allocates nothing on the device: outputs and the workspace that the query names are all that it needs.
#include <gtest/gtest.h>

#include "kernel_cases.h"
#include "stream.h"

namespace cuflash::test {
namespace {

size_t free_bytes() {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

TEST(MemoryTest, CallsAllocateNothing) {
  const std::vector<std::string> lines = {
      "b=2 h=4 hk=2 sq=129 sk=129 d=64 mask=causal",
      "b=1 h=1 hk=1 sq=8 sk=9000 d=128",
      "b=1 h=4 hk=4 sq=512 sk=400 d=256"};
  Stream stream;
  for (const KernelCase& kernel_case : kernel_cases(lines)) {  // has run each case once: the code is loaded
    OwnExecution own(kernel_case);
    const size_t before = free_bytes();
    for (int i = 0; i < 20; ++i) {
      own.enqueue(stream);
      ASSERT_EQ(free_bytes(), before) << repro(kernel_case.scenario.c, kernel_case.kernel.name);
    }
    stream.finish();
    EXPECT_EQ(free_bytes(), before) << repro(kernel_case.scenario.c, kernel_case.kernel.name);
  }
}

}  // namespace
}  // namespace cuflash::test
