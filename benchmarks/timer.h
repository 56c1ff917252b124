// SPDX-License-Identifier: MIT
// How a call is timed: warm-up, then samples of one call each, from CUDA events or the wall clock.
#pragma once

#include <vector>

#include <cuda_runtime_api.h>

#include "attention.h"
#include "buffer.h"
#include "cases.h"

namespace cuflash::bench {

struct Samples {
  std::vector<double> seconds;

  double median() const;
  double min() const;
};

struct SampleRule {
  int wanted = 20;
  double max_seconds = 3.0;
};

// As many samples as wanted and as fit into max_seconds, but at least 3.
int sample_count(const SampleRule& rule, double seconds_of_one_call);

class DeviceTimer {
 public:
  DeviceTimer();  // of the current device; throws Failure
  ~DeviceTimer();
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  // A call that alone takes max_seconds or more is measured by its warm-up.
  Samples measure(const Call& call, Temperature temperature, const SampleRule& rule);

  cudaStream_t stream() const { return stream_; }

 private:
  double warm_up(const Call& call);
  double elapsed(size_t first_event) const;
  void record(size_t event);

  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_;  // start and stop of each sample
  Buffer flush_;                     // writing it replaces what L2 holds
};

Samples measure_on_host(const Call& call, const SampleRule& rule);

}  // namespace cuflash::bench
