// SPDX-License-Identifier: MIT
#include "fake_runtime.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace cuflash::test {
namespace {

// Appends to a fixed array. A call of the library launches a handful of kernels; a test that needs more is wrong.
template <class T, size_t kSize>
void append(std::array<T, kSize>& array, size_t* count, const T& value) {
  if (*count == kSize) {
    std::fprintf(stderr, "fake runtime: more than %zu records without reset()\n", kSize);
    std::abort();
  }
  array[(*count)++] = value;
}

}  // namespace

int fresh_ordinal() {
  static std::atomic<int> next{0};
  return next++;
}

FakeRuntime& FakeRuntime::instance() {
  static thread_local FakeRuntime runtime;
  return runtime;
}

void FakeRuntime::set_device(const FakeDevice& device, int ordinal) {
  device_ = device;
  ordinal_ = ordinal;
}

void FakeRuntime::fail_call(int n, cudaError_t error) {
  failing_call_ = num_calls_ + n;
  error_ = error;
}

void FakeRuntime::fail_all(cudaError_t error) {
  fail_all_ = true;
  error_ = error;
}

int FakeRuntime::allowed_shared_bytes(const void* kernel) const {
  int bytes = kDefaultSharedBytes;
  for (size_t i = 0; i < num_allowances_; ++i) {
    if (allowances_[i].kernel == kernel) bytes = allowances_[i].bytes;
  }
  return bytes;
}

cudaError_t FakeRuntime::count_call(const char* name) {
  ++num_calls_;
  if (!fail_all_ && num_calls_ != failing_call_) return cudaSuccess;
  failed_call_ = name;
  return error_;
}

cudaError_t FakeRuntime::get_device(int* ordinal) {
  if (const cudaError_t error = count_call("get_device"); error != cudaSuccess) return error;
  *ordinal = ordinal_;
  return cudaSuccess;
}

cudaError_t FakeRuntime::get_attribute(int* value, cudaDeviceAttr attribute, int ordinal) {
  if (const cudaError_t error = count_call("get_attribute"); error != cudaSuccess) return error;
  ++num_attribute_queries_;
  if (ordinal != ordinal_) return cudaErrorInvalidDevice;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = device_.sm / 10; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = device_.sm % 10; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = device_.num_sms; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = device_.max_shared_bytes; return cudaSuccess;
    default: return cudaErrorInvalidValue;
  }
}

// Refuses what a GPU would refuse, so that a wrong launch shape fails here and not only on a GPU.
cudaError_t FakeRuntime::launch(const cudaLaunchConfig_t& config, const void* kernel) {
  if (const cudaError_t error = count_call("launch"); error != cudaSuccess) return error;
  const dim3 grid = config.gridDim, block = config.blockDim;
  const bool grid_fits =
      grid.x >= 1 && grid.x <= INT32_MAX && grid.y >= 1 && grid.y <= 65535 && grid.z >= 1 && grid.z <= 65535;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (!grid_fits || threads == 0 || threads > 1024) return cudaErrorInvalidConfiguration;
  if (config.dynamicSmemBytes > static_cast<size_t>(allowed_shared_bytes(kernel))) return cudaErrorInvalidValue;
  append(launches_, &num_launches_, {kernel, grid, block, config.dynamicSmemBytes, config.stream});
  return cudaSuccess;
}

cudaError_t FakeRuntime::load_kernel(const void* kernel) {
  if (const cudaError_t error = count_call("load_kernel"); error != cudaSuccess) return error;
  append(loaded_, &num_loaded_, kernel);
  return cudaSuccess;
}

cudaError_t FakeRuntime::allow_dynamic_shared_memory(const void* kernel, int bytes) {
  if (const cudaError_t error = count_call("allow_dynamic_shared_memory"); error != cudaSuccess) return error;
  if (bytes < 0 || bytes > device_.max_shared_bytes) return cudaErrorInvalidValue;
  append(allowances_, &num_allowances_, {kernel, bytes});
  return cudaSuccess;
}

// Refuses what the driver refuses.
cudaError_t FakeRuntime::encode_tensor_map(const runtime::TensorBoxes& boxes) {
  if (const cudaError_t error = count_call("encode_tensor_map"); error != cudaSuccess) return error;
  constexpr cuuint64_t kMaxExtent = cuuint64_t{1} << 32;
  constexpr cuuint64_t kMaxStride = cuuint64_t{1} << 40;
  bool valid = boxes.data != nullptr && reinterpret_cast<uintptr_t>(boxes.data) % 16 == 0;
  for (const cuuint64_t extent : boxes.extents) valid = valid && extent >= 1 && extent <= kMaxExtent;
  for (const cuuint64_t stride : boxes.strides) valid = valid && stride % 16 == 0 && stride < kMaxStride;
  for (const cuuint32_t rows : boxes.box) valid = valid && rows >= 1 && rows <= 256;
  if (!valid || boxes.box[0] * 2 > 128) return cudaErrorInvalidValue;  // a row of a swizzled box has 128 bytes at most
  append(tensor_maps_, &num_tensor_maps_, boxes);
  return cudaSuccess;
}

}  // namespace cuflash::test

namespace cuflash::runtime {

using test::fake_runtime;

cudaError_t get_device(int* ordinal) { return fake_runtime().get_device(ordinal); }

cudaError_t get_attribute(int* value, cudaDeviceAttr attribute, int ordinal) {
  return fake_runtime().get_attribute(value, attribute, ordinal);
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, void** /*arguments*/) {
  return fake_runtime().launch(config, kernel);
}

cudaError_t load_kernel(const void* kernel) { return fake_runtime().load_kernel(kernel); }

cudaError_t allow_dynamic_shared_memory(const void* kernel, int bytes) {
  return fake_runtime().allow_dynamic_shared_memory(kernel, bytes);
}

cudaError_t encode_tensor_map(CUtensorMap* /*map*/, const TensorBoxes& boxes) {
  return fake_runtime().encode_tensor_map(boxes);
}

const char* error_name(int error) {
  switch (error) {
    case cudaErrorStubLibrary: return "cudaErrorStubLibrary";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
    case cudaErrorUnsupportedPtxVersion: return "cudaErrorUnsupportedPtxVersion";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    default: return "cudaErrorUnknown";
  }
}

}  // namespace cuflash::runtime
