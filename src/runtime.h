// SPDX-License-Identifier: MIT
// Every CUDA runtime call of the library. Tests link another implementation of this header, which needs no GPU and
// can fail any call; nothing else in the library includes the runtime's functions.
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

namespace cuflash::runtime {

cudaError_t get_device(int* ordinal);
cudaError_t get_attribute(int* value, cudaDeviceAttr attribute, int ordinal);
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, void** arguments);
cudaError_t load_kernel(const void* kernel);  // makes the kernel's code resident on the current device
cudaError_t allow_dynamic_shared_memory(const void* kernel, int bytes);
const char* error_name(int error);

}  // namespace cuflash::runtime
