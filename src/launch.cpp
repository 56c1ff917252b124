// SPDX-License-Identifier: MIT
#include "launch.h"

#include <algorithm>

#include "runtime.h"

namespace cuflash {
namespace {

constexpr size_t kDefaultSharedBytes = 48 * 1024;  // more must be allowed per kernel
constexpr int64_t kMaxGrid = INT32_MAX;            // of gridDim.x

Status check_launch(cudaError_t error, const char* name) {
  switch (error) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return fail(
          CUFLASH_STATUS_NOT_SUPPORTED,
          "kernel %s has no code for this device (%s, %d); this library is: %s",
          name,
          runtime::error_name(error),
          error,
          cuflashGetBuildInfo()
      );
    default: return check_cuda(error, name);
  }
}

}  // namespace

Status launch_kernel(
    const LaunchContext& context, const char* name, const void* kernel, const LaunchShape& shape, void** arguments
) {
  if (shape.shared_bytes > kDefaultSharedBytes) {
    CUFLASH_TRY(check_launch(runtime::allow_dynamic_shared_memory(kernel, static_cast<int>(shape.shared_bytes)), name));
  }
  if (context.mode == LaunchMode::kPreload) return check_launch(runtime::load_kernel(kernel), name);

  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min(shape.grid, kMaxGrid)));
  config.blockDim = dim3(static_cast<unsigned>(shape.block));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = context.stream;
  return check_launch(runtime::launch(config, kernel, arguments), name);
}

}  // namespace cuflash
