// SPDX-License-Identifier: MIT
// Calls captured into CUDA graphs. The first test of this program captures before anything has run in its process.
#include <gtest/gtest.h>

#include "kernel_cases.h"
#include "stream.h"
#include "support/compare.h"

namespace cuflash::test {
namespace {

const std::vector<std::string> kLines = {
    "b=2 h=4 hk=2 sq=129 sk=129 d=64 mask=causal", "b=3 h=2 hk=1 sq=60 sk=60 d=40 packed_q=1 packed_k=1 geo=8"};

// A captured call.
class Graph {
 public:
  Graph(OwnExecution& own, const Stream& stream, cudaStreamCaptureMode mode) {
    check_cuda(cudaStreamBeginCapture(stream, mode), "cudaStreamBeginCapture");
    own.enqueue(stream);
    check_cuda(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiateWithFlags(&executable_, graph_, 0), "cudaGraphInstantiateWithFlags");
  }
  ~Graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay(const Stream& stream, int times) const {
    for (int i = 0; i < times; ++i) check_cuda(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch");
    stream.finish();
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

// Must stay the first test: every kernel is captured before it has run in this process.
TEST(GraphsTest, CaptureAsTheFirstUseAfterPreload) {
  std::vector<KernelCase> cases;
  for (const Op op : {Op::kForward, Op::kBackward}) {
    for (const Kernel& kernel : kernels_of(op, target().device())) {
      for (const DType dtype : kAllDTypes) {
        Case c = case_of(kLines[0]);
        c.op = op;
        c.dtype = dtype;
        c.deterministic = op == Op::kBackward;
        cases.push_back({kernel, prepare(c).scenario, {}});
      }
    }
  }
  Stream stream;
  int captured = 0;
  for (KernelCase& kernel_case : cases) {
    OwnExecution own(kernel_case);
    if (own.execution().accepted() == CUFLASH_STATUS_NOT_SUPPORTED) continue;
    ASSERT_EQ(own.execution().call().preload(), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
    const Graph graph(own, stream, cudaStreamCaptureModeGlobal);
    graph.replay(stream, 1);
    const std::vector<std::byte> replayed = own.execution().read();
    kernel_case.expected = run_kernel(kernel_case.scenario, kernel_case.kernel.name);
    EXPECT_EQ(replayed, kernel_case.expected) << repro(kernel_case.scenario.c, kernel_case.kernel.name);
    ++captured;
  }
  EXPECT_GT(captured, 0);
}

TEST(GraphsTest, EveryModeReplaysWithOtherContents) {
  Stream stream;
  for (const KernelCase& kernel_case : kernel_cases(kLines)) {
    Case other_case = kernel_case.scenario.c;
    other_case.data_seed += 1;
    const Scenario other = prepare(other_case).scenario;
    const std::vector<std::byte> expected = run_kernel(other, kernel_case.kernel.name);
    ASSERT_NE(expected, kernel_case.expected);
    for (const cudaStreamCaptureMode mode :
         {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
      OwnExecution own(kernel_case);
      const Graph graph(own, stream, mode);
      graph.replay(stream, 100);
      EXPECT_EQ(own.check(), "");
      own.execution().reset(other.image);
      graph.replay(stream, 100);
      EXPECT_EQ(own.execution().read(), expected) << repro(other_case, kernel_case.kernel.name);
    }
  }
}

}  // namespace
}  // namespace cuflash::test
