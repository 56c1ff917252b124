// SPDX-License-Identifier: MIT
// Every CUDA runtime call of the library. Tests link another implementation of this header, which needs no GPU and
// can fail any call; nothing else in the library includes the runtime's functions.
#pragma once

#include <cstddef>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace cuflash::runtime {

cudaError_t get_device(int* ordinal);
cudaError_t get_attribute(int* value, cudaDeviceAttr attribute, int ordinal);
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, void** arguments);
cudaError_t load_kernel(const void* kernel);  // makes the kernel's code resident on the current device
cudaError_t allow_dynamic_shared_memory(const void* kernel, int bytes);

// A tensor of four dimensions, the innermost contiguous, and the boxes of it that copies take. Boxes are of 128 bytes a row
// and lie in shared memory with the swizzle of 128 bytes.
struct TensorBoxes {
  CUtensorMapDataType type;
  const void* data;
  cuuint64_t extents[4];  // in elements, innermost first
  cuuint64_t strides[3];  // in bytes, of all dimensions but the innermost
  cuuint32_t box[4];
};
// By the driver, which is found at the first call: the library does not link it.
cudaError_t encode_tensor_map(CUtensorMap* map, const TensorBoxes& boxes);

const char* error_name(int error);

}  // namespace cuflash::runtime
