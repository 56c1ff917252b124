// SPDX-License-Identifier: MIT
#include <algorithm>
#include <mutex>
#include <vector>

#include "cuda_check.h"
#include "geometry.h"
#include "target.h"

namespace cuflash::test {
namespace {

constexpr size_t kLargestArena = size_t{2} << 30;

class CudaMemory : public Memory {
 public:
  explicit CudaMemory(cudaStream_t stream) : stream_(stream) {}
  ~CudaMemory() override {
    for (void* block : blocks_) cudaFree(block);
  }

  std::byte* reserve(size_t bytes) override {
    void* data = nullptr;
    check_cuda(cudaMalloc(&data, std::max<size_t>(bytes, 1)), "cudaMalloc");
    blocks_.push_back(data);
    return static_cast<std::byte*>(data);
  }
  void write(std::byte* to, const std::byte* from, size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
  }
  void read(std::byte* to, const std::byte* from, size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
  }
  cuflashStream_t stream() const override { return stream_; }
  void finish() override { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_;
  std::vector<void*> blocks_;
};

// One allocation for all cases, since thousands of cudaMalloc would take longer than the kernels.
struct Arena {
  std::byte* data = nullptr;
  size_t capacity = 0;

  void start() {
    if (data != nullptr) return;
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    capacity = std::min(kLargestArena, free / 4);
    void* block = nullptr;
    check_cuda(cudaMalloc(&block, capacity), "cudaMalloc");
    data = static_cast<std::byte*>(block);
  }
};

// Holds the arena as long as it lives: one case at a time.
class ArenaMemory : public CudaMemory {
 public:
  ArenaMemory(const Arena& arena, cudaStream_t stream, std::unique_lock<std::mutex> lock)
      : CudaMemory(stream), lock_(std::move(lock)), arena_(arena) {}

  std::byte* reserve(size_t bytes) override {
    const size_t size = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    if (used_ + size > arena_.capacity) return CudaMemory::reserve(bytes);
    std::byte* data = arena_.data + used_;
    used_ += size;
    return data;
  }

 private:
  std::unique_lock<std::mutex> lock_;
  const Arena& arena_;
  size_t used_ = 0;
};

class CudaTarget : public Target {
 public:
  cuflashDevice_t device() const override { return CUFLASH_DEVICE_CUDA; }

  std::string unusable() const override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) return std::string("no CUDA device (") + cudaGetErrorName(error) + ")";
    return count == 0 ? "no CUDA device (cudaGetDeviceCount gives 0)" : "";
  }

  std::unique_ptr<Memory> open() override {
    std::unique_lock<std::mutex> lock(mutex_);
    arena_.start();
    return std::make_unique<ArenaMemory>(arena_, stream(), std::move(lock));
  }

  std::unique_ptr<Memory> open_exact() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::make_unique<CudaMemory>(stream());
  }

 private:
  cudaStream_t stream() {
    if (stream_ == nullptr) {
      check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    return stream_;
  }

  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;
  Arena arena_;
};

}  // namespace

Target& target() {
  static CudaTarget cuda;
  return cuda;
}

}  // namespace cuflash::test
