// SPDX-License-Identifier: MIT
#include "runtime.h"

#include <atomic>

namespace cuflash::runtime {
namespace {

using Encoder = decltype(&cuTensorMapEncodeTiled);  // its type alone: the function is the driver's

cudaError_t find_encoder(Encoder* encoder) {
  static std::atomic<Encoder> found{nullptr};
  *encoder = found.load(std::memory_order_acquire);
  if (*encoder != nullptr) return cudaSuccess;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess) return error;
  if (result != cudaDriverEntryPointSuccess || entry == nullptr) return cudaErrorInsufficientDriver;
  *encoder = reinterpret_cast<Encoder>(entry);
  found.store(*encoder, std::memory_order_release);
  return cudaSuccess;
}

}  // namespace

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

cudaError_t encode_tensor_map(CUtensorMap* map, const TensorBoxes& boxes) {
  Encoder encode = nullptr;
  if (const cudaError_t error = find_encoder(&encode); error != cudaSuccess) return error;
  constexpr cuuint32_t kRank = 4;
  constexpr cuuint32_t kElementStrides[kRank] = {1, 1, 1, 1};
  const CUresult result = encode(
      map,
      boxes.type,
      kRank,
      const_cast<void*>(boxes.data),
      boxes.extents,
      boxes.strides,
      boxes.box,
      kElementStrides,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
  );
  return static_cast<cudaError_t>(result);  // the two have the same numbers
}

const char* error_name(int error) { return cudaGetErrorName(static_cast<cudaError_t>(error)); }

}  // namespace cuflash::runtime
