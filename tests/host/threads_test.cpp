// SPDX-License-Identifier: MIT
// Calls from 16 threads at once: host kernels, launches and failures mixed, each with the result of a serial run and
// the message of its own thread. Built with CUFLASH_SANITIZE=thread it also shows that nothing is shared unguarded.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "calls.h"
#include "fake_runtime.h"

namespace cuflash::test {
namespace {

using Forward = cuflashForwardParams_t;
using Backward = cuflashBackwardParams_t;

constexpr int kThreads = 16;
constexpr int kCallsPerThread = 400;  // half of them on the host

// A problem for each number: lengths, heads, dimensions, mask and score function all vary.
Shape shape_of(int i) { return {1 + i % 2, 2 + 2 * (i % 2), 1 + i % 2, 1 + i % 7, 1 + i % 11, 1 + i % 13, 1 + i % 5}; }

template <class Params>
SmallCall<Params> host_call(int i) {
  SmallCall<Params> call(CUFLASH_DEVICE_HOST, shape_of(i));
  call.params.mask = i % 3 == 0 ? CUFLASH_MASK_CAUSAL : CUFLASH_MASK_NONE;
  call.params.alignment = i % 4 < 2 ? CUFLASH_ALIGN_BOTTOM_RIGHT : CUFLASH_ALIGN_TOP_LEFT;
  call.params.softcap = i % 5 == 0 ? 10.0f : 0.0f;
  return call;
}

template <class Params>
bool same_outputs(const SmallCall<Params>& x, const SmallCall<Params>& y) {
  for (size_t i = 0; i < x.outputs().size(); ++i) {
    const Buffer &a = x.outputs()[i], &b = y.outputs()[i];
    if (a.bytes() != b.bytes() || std::memcmp(a.data(), b.data(), a.bytes()) != 0) return false;
  }
  return true;
}

constexpr int kProblems = 60;

template <class Params>
std::vector<SmallCall<Params>> serial_results() {
  std::vector<SmallCall<Params>> results;
  for (int i = 0; i < kProblems; ++i) {
    results.push_back(host_call<Params>(i));
    EXPECT_EQ(results.back().run(), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
  }
  return results;
}

// Runs body(thread) in all threads, which start together.
template <class Body>
void in_threads(Body body) {
  std::atomic<int> waiting{kThreads};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      body(thread);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <class Params>
bool host_call_agrees(const SmallCall<Params>& expected, int problem) {
  const SmallCall<Params> call = host_call<Params>(problem);
  return call.run() == CUFLASH_STATUS_SUCCESS && same_outputs(call, expected);
}

// A value that no other thread has is refused, and named.
bool failure_is_own(int thread, int i) {
  SmallCall<Forward> call(CUFLASH_DEVICE_CUDA);
  const int32_t head_dim = 1000 + thread * kCallsPerThread + i;
  call.params.head_dim = head_dim;
  if (call.run() != CUFLASH_STATUS_INVALID_ARGUMENT) return false;
  return cuflashGetLastErrorMessage() == "head_dim (" + std::to_string(head_dim) + ") must be 1 to 256";
}

// A launch in a thread of its own device, stream included.
bool launch_is_own(int thread) {
  fake_runtime().reset();
  fake_runtime().set_device({}, thread);
  const auto stream = reinterpret_cast<cuflashStream_t>(static_cast<uintptr_t>(thread + 1));
  const SmallCall<Backward> call(CUFLASH_DEVICE_CUDA);
  if (call.run(stream) != CUFLASH_STATUS_SUCCESS) return false;
  for (const LaunchRecord& launch : fake_runtime().launches()) {
    if (launch.stream != stream) return false;
  }
  return !fake_runtime().launches().empty();
}

TEST(ThreadsTest, MixedCallsAgreeWithSerialOnes) {
  const std::vector<SmallCall<Forward>> forward = serial_results<Forward>();
  const std::vector<SmallCall<Backward>> backward = serial_results<Backward>();
  std::atomic<int> wrong_forward{0}, wrong_backward{0}, wrong_failures{0}, wrong_launches{0}, calls{0};
  in_threads([&](int thread) {
    for (int i = 0; i < kCallsPerThread; ++i) {
      const int problem = (thread * 7 + i) % kProblems;
      switch (i % 4) {
        case 0: wrong_forward += !host_call_agrees(forward[static_cast<size_t>(problem)], problem); break;
        case 1: wrong_backward += !host_call_agrees(backward[static_cast<size_t>(problem)], problem); break;
        case 2: wrong_failures += !failure_is_own(thread, i); break;
        default: wrong_launches += !launch_is_own(thread); break;
      }
      ++calls;
    }
  });
  EXPECT_EQ(wrong_forward, 0);
  EXPECT_EQ(wrong_backward, 0);
  EXPECT_EQ(wrong_failures, 0);
  EXPECT_EQ(wrong_launches, 0);
  EXPECT_EQ(calls, kThreads * kCallsPerThread);
}

// All threads meet a device for the first time together: its properties are read once.
TEST(ThreadsTest, PropertiesAreReadOnceByAllThreadsTogether) {
  const int ordinal = 40;
  std::atomic<int> queries{0}, failures{0};
  in_threads([&](int) {
    fake_runtime().reset();
    fake_runtime().set_device({}, ordinal);
    const SmallCall<Forward> call(CUFLASH_DEVICE_CUDA);
    failures += call.run() != CUFLASH_STATUS_SUCCESS;
    queries += fake_runtime().num_attribute_queries();
  });
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(queries, 4);
}

}  // namespace
}  // namespace cuflash::test
