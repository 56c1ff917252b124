// SPDX-License-Identifier: MIT
// Arrays in the memory of the place where attention runs, GPU or CPU, filled from doubles and read back as doubles.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuflash/cuflash.h"

namespace demo {

inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "attention_demo: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

class Buffer {
 public:
  Buffer(cuflashDevice_t device, size_t bytes) : device_(device), bytes_(bytes) {
    if (bytes == 0) return;
    if (device_ == CUFLASH_DEVICE_CUDA) {
      check_cuda(cudaMalloc(&data_, bytes), "cudaMalloc");
    } else {
      data_ = std::malloc(bytes);
      if (data_ == nullptr) std::abort();
    }
  }
  ~Buffer() {
    if (device_ == CUFLASH_DEVICE_CUDA) {
      cudaFree(data_);
    } else {
      std::free(data_);
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  void write(const void* source) {
    if (device_ == CUFLASH_DEVICE_CUDA) {
      check_cuda(cudaMemcpy(data_, source, bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
    } else {
      std::memcpy(data_, source, bytes_);
    }
  }
  void read(void* target) const {
    if (device_ == CUFLASH_DEVICE_CUDA) {
      check_cuda(cudaMemcpy(target, data_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    } else {
      std::memcpy(target, data_, bytes_);
    }
  }

 private:
  cuflashDevice_t device_;
  size_t bytes_;
  void* data_ = nullptr;
};

inline float to_float(float x) { return x; }
inline float to_float(__half x) { return __half2float(x); }
inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
inline void from_float(float x, float* y) { *y = x; }
inline void from_float(float x, __half* y) { *y = __float2half(x); }
inline void from_float(float x, __nv_bfloat16* y) { *y = __float2bfloat16(x); }

// Rounds values to T in place, so that the reference sees what the kernel sees, and uploads them.
template <class T>
void upload_rounded(std::vector<double>& values, Buffer& buffer) {
  std::vector<T> rounded(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    from_float(static_cast<float>(values[i]), &rounded[i]);
    values[i] = to_float(rounded[i]);
  }
  buffer.write(rounded.data());
}

template <class T>
std::vector<double> download(const Buffer& buffer) {
  std::vector<T> raw(buffer.bytes() / sizeof(T));
  buffer.read(raw.data());
  std::vector<double> values(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) values[i] = to_float(raw[i]);
  return values;
}

}  // namespace demo
