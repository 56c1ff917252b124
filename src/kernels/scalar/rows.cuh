// SPDX-License-Identifier: MIT
// The two moves that all kernels of the room are made of. A warp owns one row; a tile holds block_n = 32 rows of the other
// side; lanes are over the tile's rows for products, and over head_dim for weighted sums.
#pragma once

#include "kernels/common/numeric_traits.cuh"
#include "kernels/common/row_sum.cuh"
#include "kernels/common/warp_reduce.cuh"
#include "kernels/scalar/tiles.h"

namespace cuflash::scalar {

// Copies rows [begin, begin + count) of a head to shared memory as fp32, all threads of the block together. Rows past
// count are left as they are: no lane uses them.
template <int kPitch, class T>
__device__ void load_tile(float* tile, const T* first_row, int64_t row_stride, int count, int head_dim) {
  for (int i = threadIdx.x; i < count * head_dim; i += blockDim.x) {
    const int row = i / head_dim;
    const int d = i - row * head_dim;
    tile[row * kPitch + d] = to_float(first_row[row * row_stride + d]);
  }
}

// Copies one row to shared memory as fp32, by one warp.
template <class T>
__device__ void load_row(float* vector, const T* row, int head_dim, int lane) {
  for (int d = lane; d < head_dim; d += kWarpSize) vector[d] = to_float(row[d]);
}

__device__ inline float dot(const float* vector, const float* tile_row, int head_dim) {
  float sum = 0.0f;
  for (int d = 0; d < head_dim; ++d) sum = fmaf(vector[d], tile_row[d], sum);
  return sum;
}

}  // namespace cuflash::scalar
