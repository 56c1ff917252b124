// SPDX-License-Identifier: MIT
// Tensors of more than 2^31 elements and 2^32 bytes, each of a call's tensors in turn, and the longest sequence that
// the project promises, in the memory that the contract allows: the caller's buffers and a workspace linear in them.
#include <gtest/gtest.h>

#include "giant_case.h"
#include "support/conformance.h"
#include "support/cuda_check.h"

namespace cuflash::test {
namespace {

// Every kernel in both directions.
void expect_giant_right(const std::string& line) {
  GiantCase giant(line);
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const size_t needed = giant.bytes() + giant.most_workspace_bytes();
  if (free < needed) {
    GTEST_SKIP() << line << " may need " << needed << " bytes of device memory: " << free << " of " << total
                 << " are free";
  }
  giant.place();
  int cases = 0;
  for (const Op op : {Op::kForward, Op::kBackward}) {
    const std::vector<Kernel> kernels = giant.kernels(op);
    ASSERT_FALSE(kernels.empty()) << "no kernel accepts " << line;
    for (const Kernel& kernel : kernels) {
      ASSERT_EQ(giant.run(kernel), "") << kernel.name << (op == Op::kForward ? " fwd " : " bwd ") << line;
      ++cases;
    }
  }
  std::printf("cases: %d, %zu bytes\n", cases, giant.bytes());
  testing::Test::RecordProperty("cases", cases);
}

TEST(GiantTest, QueriesOf2To31Elements) {  // q, o, dout, dq
  expect_giant_right("dtype=bf16 b=9 h=64 hk=64 sq=14600 sk=8 d=256");
}

TEST(GiantTest, KeysOf2To31Elements) {  // k, v, dk, dv
  expect_giant_right("dtype=bf16 b=9 h=64 hk=64 sq=8 sk=14600 d=256");
}

TEST(GiantTest, Fp32TensorsOf2To32Bytes) { expect_giant_right("dtype=fp32 b=5 h=64 hk=64 sq=13200 sk=5 d=256"); }

TEST(GiantTest, LseOf2To31ElementsIn16MillionHeads) {  // 16,782,336 = batch x heads; dlse too
  expect_giant_right("dtype=bf16 b=16389 h=1024 hk=1024 sq=128 sk=2 d=1 dlse=1");
}

TEST(GiantTest, PackedTokensOf2To31Elements) {  // all tensors
  std::string lengths;
  for (int entry = 0; entry < 1200; ++entry) {
    if (entry > 0) lengths += ',';
    lengths += std::to_string(995 + entry % 11);
  }
  expect_giant_right(
      "dtype=bf16 b=1200 h=16 hk=16 sq=1005 sk=1005 d=128 mask=window wl=16 wr=0 packed_q=1 packed_k=1 lengths_q=" +
      lengths + " lengths_k=" + lengths
  );
}

TEST(GiantTest, SequenceOf131072InLinearMemory) {
  expect_giant_right("dtype=fp32 b=1 h=1 hk=1 sq=131072 sk=131072 d=64");
}

TEST(GiantTest, CausalSequenceOf131072InLinearMemory) {
  expect_giant_right("dtype=bf16 b=1 h=1 hk=1 sq=131072 sk=131072 d=64 mask=causal");
}

}  // namespace
}  // namespace cuflash::test
