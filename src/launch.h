// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "status.h"

namespace cuflash {

enum class LaunchMode {
  kRun,
  kPreload  // load the code of every kernel that kRun would launch, launch nothing
};

struct LaunchContext {
  void* workspace = nullptr;
  cudaStream_t stream = nullptr;
  LaunchMode mode = LaunchMode::kRun;
};

struct LaunchShape {
  int64_t grid = 0;  // blocks wanted; kernels loop over tiles, so that a launch may be given fewer
  int32_t block = 0;
  size_t shared_bytes = 0;  // dynamic
};

// The only place where kernels are launched; rooms call the typed launch() of launch.cuh.
Status launch_kernel(
    const LaunchContext& context, const char* name, const void* kernel, const LaunchShape& shape, void** arguments
);

}  // namespace cuflash
