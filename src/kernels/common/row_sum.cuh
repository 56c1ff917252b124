// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/common/numeric_traits.cuh"
#include "kernels/common/warp_reduce.cuh"

namespace cuflash {

// A row of fp32 sums, spread over a warp: lane l holds elements l, l + 32, ...
template <int kHeadDim>
struct RowSum {
  static constexpr int kPerLane = kHeadDim / kWarpSize;
  float value[kPerLane];

  __device__ RowSum() {
    for (int i = 0; i < kPerLane; ++i) value[i] = 0.0f;
  }

  __device__ void scale(float factor) {
    for (int i = 0; i < kPerLane; ++i) value[i] *= factor;
  }

  // value += sum over the rows r of [begin, end) of weight(r) * row(r); lane r holds weight(r).
  template <class T>
  __device__ void add(
      float weight, const T* first_row, int64_t row_stride, int begin, int end, int head_dim, int lane
  ) {
    for (int r = begin; r < end; ++r) {
      const float w = __shfl_sync(kFullWarp, weight, r);
      const T* row = first_row + r * row_stride;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const int d = lane + i * kWarpSize;
        if (d < head_dim) value[i] = fmaf(w, to_float(row[d]), value[i]);
      }
    }
  }

  // Whether every element is NaN: then nothing that is added changes the row.
  __device__ bool all_nan(int head_dim, int lane) const {
    bool all = true;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) all &= lane + i * kWarpSize >= head_dim || value[i] != value[i];
    return __all_sync(kFullWarp, all);
  }

  template <class T>
  __device__ void store(T* row, float factor, int head_dim, int lane) const {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int d = lane + i * kWarpSize;
      if (d < head_dim) row[d] = from_float<T>(value[i] * factor);
    }
  }
};

}  // namespace cuflash
