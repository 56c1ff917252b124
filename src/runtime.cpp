// SPDX-License-Identifier: MIT
#include "runtime.h"

namespace cuflash::runtime {

cudaError_t get_device(int* ordinal) { return cudaGetDevice(ordinal); }

cudaError_t get_attribute(int* value, cudaDeviceAttr attribute, int ordinal) {
  return cudaDeviceGetAttribute(value, attribute, ordinal);
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, void** arguments) {
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

cudaError_t load_kernel(const void* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

cudaError_t allow_dynamic_shared_memory(const void* kernel, int bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

const char* error_name(int error) { return cudaGetErrorName(static_cast<cudaError_t>(error)); }

}  // namespace cuflash::runtime
