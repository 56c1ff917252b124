// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace cuflash::test {

inline thread_local bool inside_parallel_for = false;

// Calls fn(0) ... fn(count - 1) on all cores. Nested calls run serially: the outermost loop has the most to share out.
template <class Fn>
void parallel_for(int64_t count, Fn fn) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t num_threads = inside_parallel_for ? 1 : std::min(cores, count);
  if (num_threads <= 1) {
    for (int64_t i = 0; i < count; ++i) fn(i);
    return;
  }
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    inside_parallel_for = true;
    for (int64_t i = next++; i < count; i = next++) fn(i);
    inside_parallel_for = false;
  };
  std::vector<std::thread> threads;
  for (int64_t t = 1; t < num_threads; ++t) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace cuflash::test
