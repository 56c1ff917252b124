// SPDX-License-Identifier: MIT
// src/runtime.h without a GPU: any device, every launch recorded, any call failed on demand. With it the whole path of
// a call, from validation to the launch, runs on a machine that has no driver.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime.h"

namespace cuflash::test {

// An NVIDIA H200 unless a test says otherwise.
struct FakeDevice {
  int sm = 90;
  int num_sms = 132;
  int max_shared_bytes = 227 * 1024;
};

struct LaunchRecord {
  const void* kernel;
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  cudaStream_t stream;
};

// The library keeps a device's properties for ordinals below 64 as long as the process lives. This one it never keeps.
inline constexpr int kUncachedOrdinal = 1000;

// An ordinal that nothing in this process has used: its properties are read at the first call and kept.
int fresh_ordinal();

// State of one thread, as CUDA's current device is. Nothing here allocates: tests count the library's allocations.
class FakeRuntime {
 public:
  static FakeRuntime& instance();

  void reset() { *this = FakeRuntime(); }

  void set_device(const FakeDevice& device, int ordinal = kUncachedOrdinal);

  // The n-th call from now (1 is the next) returns `error` and does nothing.
  void fail_call(int n, cudaError_t error);
  // Every call fails, as without a driver.
  void fail_all(cudaError_t error);

  int num_calls() const { return num_calls_; }
  const char* failed_call() const { return failed_call_; }  // "launch" and so on; null if nothing was failed
  int num_attribute_queries() const { return num_attribute_queries_; }
  std::span<const LaunchRecord> launches() const { return {launches_.data(), num_launches_}; }
  std::span<const void* const> loaded_kernels() const { return {loaded_.data(), num_loaded_}; }
  std::span<const runtime::TensorBoxes> tensor_maps() const { return {tensor_maps_.data(), num_tensor_maps_}; }
  // Dynamic shared memory that the kernel may use.
  int allowed_shared_bytes(const void* kernel) const;

  // What the functions of runtime.h call.
  cudaError_t get_device(int* ordinal);
  cudaError_t get_attribute(int* value, cudaDeviceAttr attribute, int ordinal);
  cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel);
  cudaError_t load_kernel(const void* kernel);
  cudaError_t allow_dynamic_shared_memory(const void* kernel, int bytes);
  cudaError_t encode_tensor_map(const runtime::TensorBoxes& boxes);

 private:
  static constexpr size_t kCapacity = 64;
  static constexpr int kDefaultSharedBytes = 48 * 1024;

  struct Allowance {
    const void* kernel;
    int bytes;
  };

  cudaError_t count_call(const char* name);

  FakeDevice device_;
  int ordinal_ = kUncachedOrdinal;
  int num_calls_ = 0;
  int failing_call_ = 0;
  cudaError_t error_ = cudaSuccess;
  bool fail_all_ = false;
  const char* failed_call_ = nullptr;
  int num_attribute_queries_ = 0;
  std::array<LaunchRecord, kCapacity> launches_{};
  size_t num_launches_ = 0;
  std::array<const void*, kCapacity> loaded_{};
  size_t num_loaded_ = 0;
  std::array<Allowance, kCapacity> allowances_{};
  size_t num_allowances_ = 0;
  std::array<runtime::TensorBoxes, kCapacity> tensor_maps_{};
  size_t num_tensor_maps_ = 0;
};

inline FakeRuntime& fake_runtime() { return FakeRuntime::instance(); }

}  // namespace cuflash::test
