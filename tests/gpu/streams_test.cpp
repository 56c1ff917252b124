// SPDX-License-Identifier: MIT
// Calls from several threads on several streams at once give what they give alone.
#include <gtest/gtest.h>

#include <mutex>
#include <span>
#include <thread>

#include "kernel_cases.h"
#include "stream.h"

namespace cuflash::test {
namespace {

const std::vector<std::string> kLines = {
    "b=2 h=4 hk=2 sq=129 sk=129 d=64 mask=causal",
    "b=1 h=2 hk=2 sq=200 sk=100 d=128",
    "b=3 h=2 hk=1 sq=60 sk=60 d=40 packed_q=1 packed_k=1 geo=8"};

constexpr int kCallsPerStream = 200;
constexpr int kCallsPerCheck = 50;  // reading back waits for the GPU, so not after every call

// Fills its stream with calls of one case; returns what went wrong.
std::string hammer(const KernelCase& kernel_case) {
  Stream stream;
  OwnExecution own(kernel_case);
  for (int call = 0; call < kCallsPerStream; call += kCallsPerCheck) {
    own.reset();
    for (int i = 0; i < kCallsPerCheck; ++i) own.enqueue(stream);
    stream.finish();
    if (std::string wrong = own.check(); !wrong.empty()) return wrong;
  }
  return "";
}

TEST(StreamsTest, EightStreamsFromOneThread) {
  constexpr size_t kStreams = 8;
  const std::vector<KernelCase> cases = kernel_cases(kLines);
  for (size_t first = 0; first < cases.size(); first += kStreams) {
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<OwnExecution>> executions;
    for (size_t s = 0; s < kStreams; ++s) {
      streams.push_back(std::make_unique<Stream>());
      executions.push_back(std::make_unique<OwnExecution>(cases[(first + s) % cases.size()]));
    }
    for (int call = 0; call < kCallsPerStream; ++call) {
      for (size_t s = 0; s < kStreams; ++s) executions[s]->enqueue(*streams[s]);
    }
    for (const auto& stream : streams) stream->finish();
    for (const auto& execution : executions) EXPECT_EQ(execution->check(), "");
  }
}

// Runs each of the cases on a thread of its own.
void hammer_together(std::span<const KernelCase> cases) {
  std::mutex mutex;
  std::vector<std::string> failures;
  std::vector<std::thread> threads;
  for (const KernelCase& kernel_case : cases) {
    threads.emplace_back([&] {
      std::string wrong;
      try {
        wrong = hammer(kernel_case);
      } catch (const std::exception& error) {
        wrong = error.what();
      }
      const std::lock_guard<std::mutex> lock(mutex);
      if (!wrong.empty()) failures.push_back(wrong);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) ADD_FAILURE() << failure;
}

TEST(StreamsTest, SixteenThreadsEachWithAStream) {
  constexpr size_t kThreads = 16;
  std::vector<KernelCase> cases = kernel_cases(kLines);
  for (size_t i = 0; cases.size() % kThreads != 0; ++i) cases.push_back(KernelCase(cases[i]));
  for (size_t first = 0; first < cases.size(); first += kThreads) {
    hammer_together(std::span(cases).subspan(first, kThreads));
  }
}

TEST(StreamsTest, TheDefaultStreamAndTheCallersDevice) {
  int before = -1, after = -1;
  check_cuda(cudaGetDevice(&before), "cudaGetDevice");
  for (const KernelCase& kernel_case : kernel_cases({kLines[0]})) {
    OwnExecution own(kernel_case);
    own.enqueue(nullptr);
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    EXPECT_EQ(own.check(), "");
  }
  check_cuda(cudaGetDevice(&after), "cudaGetDevice");
  EXPECT_EQ(after, before);
}

TEST(StreamsTest, AnErrorOfTheCallerIsNeitherBlamedNorCleared) {
  for (const KernelCase& kernel_case : kernel_cases({kLines[0]})) {
    OwnExecution own(kernel_case);
    ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
    own.enqueue(nullptr);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    EXPECT_EQ(own.check(), "");
  }
}

}  // namespace
}  // namespace cuflash::test
