// SPDX-License-Identifier: MIT
// What all benchmarks of a run share: options, GPU, timer, cuBLAS, and the ceilings once they are measured.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cublas.h"
#include "gpu.h"
#include "nvml.h"
#include "options.h"
#include "timer.h"

namespace cuflash::bench {

struct Lab {
  explicit Lab(Options given);

  Options options;
  std::optional<Gpu> gpu;
  std::string no_gpu_reason;
  std::unique_ptr<Nvml> nvml;      // null if not there
  std::unique_ptr<Cublas> cublas;  // null if not there
  std::string no_cublas_reason;
  std::unique_ptr<DeviceTimer> timer;  // null without a GPU

  std::map<cuflashDataType_t, double> matmul_flops_per_second;  // filled by the ceiling benchmarks
  std::optional<double> copy_bytes_per_second;

  int failures = 0;

  SampleRule sample_rule() const { return {options.samples, options.max_seconds}; }
};

}  // namespace cuflash::bench
