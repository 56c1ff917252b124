// SPDX-License-Identifier: MIT
#include "timer.h"

#include <algorithm>
#include <chrono>

#include "failure.h"

namespace cuflash::bench {
namespace {

constexpr int kMinSamples = 3;
constexpr double kWarmUpSeconds = 0.05;  // an idle GPU needs some work before its clocks are up
constexpr int kWarmUpCalls = 50;
constexpr size_t kMinFlushBytes = size_t{256} << 20;

size_t flush_bytes() {
  int device = 0, l2_bytes = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
  return std::max(kMinFlushBytes, 4 * static_cast<size_t>(l2_bytes));
}

double seconds_of(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  call(nullptr);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double Samples::median() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : 0.5 * (sorted[middle - 1] + sorted[middle]);
}

double Samples::min() const { return *std::min_element(seconds.begin(), seconds.end()); }

int sample_count(const SampleRule& rule, double seconds_of_one_call) {
  const double fitting = rule.max_seconds / std::max(seconds_of_one_call, 1e-9);
  return fitting >= rule.wanted ? rule.wanted : std::max(kMinSamples, static_cast<int>(fitting));
}

DeviceTimer::DeviceTimer() : flush_(flush_bytes(), CUFLASH_DEVICE_CUDA) {
  require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

DeviceTimer::~DeviceTimer() {
  for (const cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
  static_cast<void>(cudaStreamDestroy(stream_));
}

void DeviceTimer::record(size_t event) {
  while (events_.size() <= event) {
    cudaEvent_t created = nullptr;
    require(cudaEventCreate(&created), "cudaEventCreate");
    events_.push_back(created);
  }
  require(cudaEventRecord(events_[event], stream_), "cudaEventRecord");
}

double DeviceTimer::elapsed(size_t first_event) const {
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, events_[first_event], events_[first_event + 1]), "cudaEventElapsedTime");
  return 1e-3 * milliseconds;
}

double DeviceTimer::warm_up(const Call& call) {
  double last = 0, total = 0;
  for (int calls = 0; calls == 0 || (total < kWarmUpSeconds && calls < kWarmUpCalls); ++calls) {
    record(0);
    call(stream_);
    record(1);
    require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize after a warm-up call");
    last = elapsed(0);
    total += last;
  }
  return last;
}

// Everything is enqueued before anything is waited for: the flush, or the call before, keeps the GPU busy while the
// host enqueues the next call, so that no gap of the host's falls between the events. (Hot calls shorter than their own
// enqueueing, some microseconds, do show it.)
Samples DeviceTimer::measure(const Call& call, Temperature temperature, const SampleRule& rule) {
  const double estimate = warm_up(call);
  if (estimate >= rule.max_seconds) return {{estimate}};

  const auto count = static_cast<size_t>(sample_count(rule, estimate));
  if (temperature == Temperature::kHot) call(stream_);
  for (size_t i = 0; i < count; ++i) {
    if (temperature == Temperature::kCold) {
      const int value = static_cast<int>(i & 0xff);
      require(cudaMemsetAsync(flush_.data(), value, flush_.bytes(), stream_), "cudaMemsetAsync");
    }
    record(2 * i);
    call(stream_);
    record(2 * i + 1);
  }
  require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize after the samples");
  Samples samples;
  for (size_t i = 0; i < count; ++i) samples.seconds.push_back(elapsed(2 * i));
  return samples;
}

Samples measure_on_host(const Call& call, const SampleRule& rule) {
  const double estimate = seconds_of(call);  // warm-up
  if (estimate >= rule.max_seconds) return {{estimate}};
  Samples samples;
  for (int i = sample_count(rule, estimate); i > 0; --i) samples.seconds.push_back(seconds_of(call));
  return samples;
}

}  // namespace cuflash::bench
