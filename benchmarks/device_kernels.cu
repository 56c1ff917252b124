// SPDX-License-Identifier: MIT
#include "device_kernels.h"

#include <algorithm>

#include "elements.h"
#include "failure.h"

namespace cuflash::bench {
namespace {

template <class T>
__global__ void fill_normal_kernel(T* data, int64_t elements, uint64_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += step) {
    data[i] = from_float<T>(random_normal(seed, static_cast<uint64_t>(i)));
  }
}

__global__ void do_nothing_kernel() {}

}  // namespace

void fill_normal(void* data, cuflashDataType_t dtype, int64_t elements, uint64_t seed, cudaStream_t stream) {
  constexpr int kBlock = 256;
  const auto grid = static_cast<unsigned>(std::clamp<int64_t>((elements + kBlock - 1) / kBlock, 1, 65536));
  with_element_type(dtype, [&](auto* type) {
    fill_normal_kernel<<<grid, kBlock, 0, stream>>>(static_cast<decltype(type)>(data), elements, seed);
  });
  require(cudaGetLastError(), "fill_normal");
}

const void* empty_kernel() { return reinterpret_cast<const void*>(&do_nothing_kernel); }

}  // namespace cuflash::bench
