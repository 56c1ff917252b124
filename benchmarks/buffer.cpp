// SPDX-License-Identifier: MIT
#include "buffer.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "cases.h"
#include "device_kernels.h"
#include "elements.h"
#include "failure.h"

namespace cuflash::bench {
namespace {

constexpr size_t kAlignment = 256;  // what the library asks of a workspace; cudaMalloc gives it too

void* allocate_host(size_t bytes) {
  void* data = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (data == nullptr) throw Failure("no host memory for " + std::to_string(bytes) + " bytes");
  return data;
}

void* allocate_gpu(size_t bytes) {
  void* data = nullptr;
  require(cudaMalloc(&data, bytes), "cudaMalloc");
  return data;
}

void free_gpu(void* data) { static_cast<void>(cudaFree(data)); }

}  // namespace

Buffer::Buffer(size_t bytes, cuflashDevice_t device) : bytes_(bytes), device_(device) {
  if (bytes == 0) return;
  if (device == CUFLASH_DEVICE_HOST) {
    data_ = {allocate_host(bytes), std::free};
  } else {
    data_ = {allocate_gpu(bytes), free_gpu};
  }
}

void Buffer::fill_normal(cuflashDataType_t dtype, uint64_t seed) {
  const int64_t elements = static_cast<int64_t>(bytes_) / element_bytes(dtype);
  if (device_ == CUFLASH_DEVICE_CUDA) {
    bench::fill_normal(data(), dtype, elements, seed, nullptr);
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize after fill_normal");
    return;
  }
  with_element_type(dtype, [&]<class T>(T*) {
    for (int64_t i = 0; i < elements; ++i) {
      static_cast<T*>(data())[i] = from_float<T>(random_normal(seed, static_cast<uint64_t>(i)));
    }
  });
}

void Buffer::poison() {
  if (device_ == CUFLASH_DEVICE_CUDA) {
    require(cudaMemset(data(), 0xff, bytes_), "cudaMemset");
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize after cudaMemset");
  } else {
    std::memset(data(), 0xff, bytes_);
  }
}

std::vector<float> Buffer::to_floats(cuflashDataType_t dtype) const {
  std::vector<std::byte> bytes(bytes_);
  if (device_ == CUFLASH_DEVICE_CUDA) {
    require(cudaMemcpy(bytes.data(), data(), bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
  } else {
    std::memcpy(bytes.data(), data(), bytes_);
  }
  std::vector<float> floats(bytes_ / static_cast<size_t>(element_bytes(dtype)));
  with_element_type(dtype, [&]<class T>(T*) {
    for (size_t i = 0; i < floats.size(); ++i) {
      T element;
      std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
      floats[i] = to_float(element);
    }
  });
  return floats;
}

}  // namespace cuflash::bench
