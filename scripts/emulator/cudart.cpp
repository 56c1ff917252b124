// SPDX-License-Identifier: MIT
// The CUDA runtime of the emulated device, as far as the library and its tests call it: the attributes of an H200, and
// streams that are all in the order of the calls. Memory is the host's: every allocation ends before a page that cannot
// be touched, and what is not written yet is NaN.
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "device.h"
#include "tensor_copies.h"

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kAlignment = 256;                 // of cudaMalloc()
constexpr size_t kMemoryBytes = size_t{80} << 30;  // what cudaMemGetInfo() says
constexpr size_t kDefaultSharedBytes = 48 << 10;
constexpr int kByteOfNan = 0xFF;

size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

struct Block {
  void* pages;
  size_t bytes;
};

std::mutex mutex;
std::map<void*, Block> blocks;
std::map<const void*, size_t> allowed_shared_bytes;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// A file in memory that holds kPatternBytes of one value.
constexpr size_t kPatternBytes = 64 << 20;
int pattern_file(int value) {
  static std::map<int, int> files;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = files.find(value); found != files.end()) return found->second;
  const int file = memfd_create("cuflash_pattern", 0);
  if (file < 0 || ftruncate(file, kPatternBytes) != 0) emulator::fault("no memory for a pattern");
  void* data = mmap(nullptr, kPatternBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  std::memset(data, value, kPatternBytes);
  munmap(data, kPatternBytes);
  return files[value] = file;
}

// memset(). Whole pages of a large piece are mapped to the pattern, and take memory only once they are written: tests
// fill allocations that are larger than the host's memory.
void fill(std::byte* data, int value, size_t bytes) {
  std::byte* end = data + bytes;
  const auto to_page = static_cast<size_t>(-reinterpret_cast<intptr_t>(data)) % kPageBytes;
  if (bytes >= to_page + kPatternBytes) {
    std::memset(data, value, to_page);
    const int file = pattern_file(value);
    for (data += to_page; static_cast<size_t>(end - data) >= kPatternBytes; data += kPatternBytes) {
      const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
      if (mmap(data, kPatternBytes, PROT_READ | PROT_WRITE, flags, file, 0) == MAP_FAILED) {
        emulator::fault("a pattern cannot be mapped");
      }
    }
  }
  std::memset(data, value, static_cast<size_t>(end - data));
}

}  // namespace

extern "C" {

// ---- Device and errors

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return remember(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = 132; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = emulator::kSharedBytes; return cudaSuccess;
    default: return remember(cudaErrorInvalidValue);
  }
}

// The driver has one function: it makes tensor maps.
cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* result
) {
  const bool found = std::strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *function = found ? reinterpret_cast<void*>(&emulator::encode_tensor_map) : nullptr;
  *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// Of toolkits before 12.5.
cudaError_t cudaGetDriverEntryPoint(
    const char* name, void** function, unsigned long long flags, cudaDriverEntryPointQueryResult* result
) {
  return cudaGetDriverEntryPointByVersion(name, function, 12000, flags, result);
}

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    default: return "an error that the emulated device does not have";
  }
}

const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

// ---- Memory

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = kMemoryBytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  const size_t used = round_up(bytes, kAlignment);
  const size_t size = round_up(used, kPageBytes);
  void* pages =
      mmap(nullptr, size + kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return remember(cudaErrorMemoryAllocation);
  mprotect(static_cast<std::byte*>(pages) + size, kPageBytes, PROT_NONE);
  *data = static_cast<std::byte*>(pages) + size - used;
  fill(static_cast<std::byte*>(pages), kByteOfNan, size);
  const std::lock_guard<std::mutex> lock(mutex);
  blocks[*data] = {pages, size + kPageBytes};
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto block = blocks.find(data);
  if (block == blocks.end()) return remember(cudaErrorInvalidValue);
  munmap(block->second.pages, block->second.bytes);
  blocks.erase(block);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  fill(static_cast<std::byte*>(data), value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}

// ---- Streams. Calls are carried out at once, so that all streams are always empty.

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

// ---- Kernels

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const bool fits = value >= 0 && static_cast<size_t>(value) <= emulator::kSharedBytes;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || !fits) return remember(cudaErrorInvalidValue);
  const std::lock_guard<std::mutex> lock(mutex);
  allowed_shared_bytes[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  const emulator::KernelEntry* entry = emulator::find_kernel(kernel);
  if (entry == nullptr) return remember(cudaErrorInvalidDeviceFunction);
  const dim3 grid = config->gridDim, block = config->blockDim;
  const bool shape_fits = grid.x >= 1 && grid.y == 1 && grid.z == 1 && block.x >= emulator::kWarpSize &&
                          block.x % emulator::kWarpSize == 0 && block.x <= 1024 && block.y == 1 && block.z == 1;
  if (!shape_fits) return remember(cudaErrorInvalidConfiguration);
  size_t allowed = kDefaultSharedBytes;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = allowed_shared_bytes.find(kernel);
    if (found != allowed_shared_bytes.end()) allowed = std::max(allowed, found->second);
  }
  if (config->dynamicSmemBytes > allowed) return remember(cudaErrorInvalidValue);
  emulator::run({grid.x, block.x, config->dynamicSmemBytes, entry->shared}, [=] { entry->call(kernel, arguments); });
  return cudaSuccess;
}

}  // extern "C"
