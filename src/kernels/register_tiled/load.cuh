// SPDX-License-Identifier: MIT
// Between global and shared memory, there always as fp32, by all threads of a block together. What lies past the rows in
// use or past head_dim becomes 0. fp32 is copied asynchronously; 16-bit types pass through registers, which convert them.
// The caller commits, waits and synchronises.
#pragma once

#include <cstdint>

#include "kernels/common/element.cuh"
#include "kernels/common/mask.h"
#include "kernels/common/sequence.h"
#include "kernels/register_tiled/ptx.cuh"
#include "kernels/register_tiled/tiles.h"

namespace cuflash::register_tiled {

// Four neighbouring elements as fp32; `used` of them are read, the others become 0.
template <class T>
__device__ __forceinline__ void copy_quad(float* to, const char* from, int used, bool aligned) {
  const T* elements = reinterpret_cast<const T*>(from);
  if constexpr (sizeof(T) == sizeof(float)) {
    if (aligned) {
      copy_16_bytes(to, from, 4 * used);
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) copy_4_bytes(to + e, elements + e, e < used ? 4 : 0);
    }
  } else {
    alignas(8) T quad[4] = {};
    if (aligned && used == 4) {
      *reinterpret_cast<uint2*>(quad) = *reinterpret_cast<const uint2*>(from);
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (e < used) quad[e] = elements[e];
      }
    }
    *reinterpret_cast<float4*>(to) =
        make_float4(to_float(quad[0]), to_float(quad[1]), to_float(quad[2]), to_float(quad[3]));
  }
}

// One thread's part of the tiles of kBlockRows x kHeadDim that follow each other in the rows of a head: four elements of
// every kRowStride-th row. Addresses are in bytes, so that registers hold one whatever the type.
template <int kThreads, int kBlockRows, int kHeadDim>
struct TileLoader {
  static constexpr int kQuads = kHeadDim / 4;  // per row
  static constexpr int kRowStride = kThreads / kQuads;
  static_assert(kThreads % kQuads == 0 && kBlockRows % kRowStride == 0);

  const char* source;
  int64_t stride;
  int left;  // rows from this thread's first one on
  int used;  // elements of the four that lie in head_dim

  __device__ TileLoader(
      const ConstTensor& tensor,
      cuflashDataType_t dtype,
      const Rows& rows,
      const Range& range,
      int32_t head,
      int head_dim
  ) {
    const int64_t element_bytes = dtype == CUFLASH_R_32F ? 4 : 2;
    const int first_row = threadIdx.x / kQuads;
    const int d = threadIdx.x % kQuads * 4;
    stride = tensor.row_stride * element_bytes;
    source = static_cast<const char*>(tensor.data) + (row_offset(tensor, rows, range.begin, head) + d) * element_bytes +
             first_row * stride;
    left = range.end - range.begin - first_row;
    used = min(max(head_dim - d, 0), 4);
  }

  // Copies the present tile to rows of kPitch floats, and goes on to the next one.
  template <int kPitch>
  __device__ __forceinline__ void load(float* tile, cuflashDataType_t dtype, bool aligned) {
    float* to = tile + threadIdx.x / kQuads * kPitch + threadIdx.x % kQuads * 4;
    const int64_t step = kRowStride * stride;
    with_element(dtype, [&]<class T>() {
      // What passes through registers: few rows at a time, the accumulators leave no room.
      constexpr int kUnroll = sizeof(T) == sizeof(float) ? kBlockRows / kRowStride : 4;
      if (left > kBlockRows - kRowStride && aligned) {
#pragma unroll kUnroll
        for (int row = 0; row < kBlockRows; row += kRowStride, source += step)
          copy_quad<T>(to + row * kPitch, source, used, true);
      } else {
#pragma unroll 2
        for (int row = 0; row < kBlockRows; row += kRowStride, source += step) {
          copy_quad<T>(to + row * kPitch, source, row < left ? used : 0, aligned);
        }
      }
    });
    left -= kBlockRows;
  }
};

// kBlockRows rows of kHeadDim elements, transposed: element d of a row goes to [d][row]. A warp copies 4 rows x 8 elements
// at a time, in fp32 whole 32-byte sectors of global memory; the bank conflicts are those of a tile loaded once.
template <int kThreads, int kBlockRows, int kHeadDim>
__device__ __forceinline__ void load_columns(
    float* to,
    const ConstTensor& tensor,
    cuflashDataType_t dtype,
    const Rows& rows,
    const Range& range,
    int32_t head,
    int head_dim
) {
  constexpr int kWarps = kThreads / kWarpSize;
  static_assert(kBlockRows % (4 * kWarps) == 0);
  const int lane = threadIdx.x % kWarpSize;
  with_element(dtype, [&]<class T>() {
#pragma unroll 1
    for (int quad = threadIdx.x / kWarpSize; quad < kBlockRows / 4; quad += kWarps) {
      const int row = 4 * quad + lane % 4;
      const bool has_row = row < range.end - range.begin;
      const T* source = row_pointer<T>(tensor, rows, range.begin, head) + row * tensor.row_stride;
#pragma unroll 4
      for (int d = lane / 4; d < kHeadDim; d += 8) {
        float* target = to + d * kBlockRows + row;
        const bool valid = has_row && d < head_dim;
        if constexpr (sizeof(T) == sizeof(float)) {
          copy_4_bytes(target, source + d, valid ? 4 : 0);
        } else {
          *target = valid ? to_float(source[d]) : 0.0f;
        }
      }
    }
  });
}

// The other way: rows [begin, end) of one head, from kPitch floats a row.
template <int kThreads, int kHeadDim, int kPitch>
__device__ __forceinline__ void store_rows(
    const Tensor& tensor,
    cuflashDataType_t dtype,
    const Rows& rows,
    const Range& range,
    int32_t head,
    int32_t head_dim,
    const float* from
) {
  with_element(dtype, [&]<class T>() {
    T* to = mutable_row_pointer<T>(tensor, rows, range.begin, head);
    for (int i = threadIdx.x; i < (range.end - range.begin) * kHeadDim; i += kThreads) {
      const int row = i / kHeadDim;
      const int d = i % kHeadDim;
      if (d < head_dim) to[row * tensor.row_stride + d] = from_float<T>(from[row * kPitch + d]);
    }
  });
}

// Whether this thread's part of a tile of kBlockRows x kHeadDim floats holds NaN or Inf.
template <int kThreads, int kBlockRows, int kHeadDim, int kPitch>
__device__ __forceinline__ bool any_not_finite(const float* tile) {
  constexpr int kVectors = kHeadDim / 4;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < kBlockRows * kVectors; i += kThreads) {
    const float4 x = *reinterpret_cast<const float4*>(tile + i / kVectors * kPitch + i % kVectors * 4);
    // 0 for finite numbers, else NaN.
    sum += (x.x - x.x) + (x.y - x.y) + (x.z - x.z) + (x.w - x.w);
  }
  return sum != 0.0f;
}

}  // namespace cuflash::register_tiled
