// SPDX-License-Identifier: MIT
// Rows of 16-bit elements between global and shared memory, 8 elements at a time where every row begins at a multiple of
// 16 bytes and ends at one (`aligned`), one by one otherwise.
#pragma once

#include <cstdint>

#include "kernels/common/warp.h"
#include "kernels/wmma/tiles.h"

namespace cuflash::wmma {

inline constexpr int kChunk = 8;  // elements of 16 bytes

// A tile on its way to shared memory, by all threads of a block: fetch() reads it into registers, place() writes it. Rows
// that are not aligned are read by place(). What lies past the rows in use or past head_dim becomes 0.
template <class T, int kThreads, int kRows, int kHeadDim, int kPitch>
class TileCopy {
 public:
  // Where a thread reads its part of a tile.
  struct Source {
    const T* first;
    int64_t step;
    int left;  // rows from its first one on
    int used;  // elements from its chunk on
  };

  // `rows`: the first row of the tile, `count` of which are in use (or more, or none).
  __device__ __forceinline__ static Source source(const T* rows, int64_t row_stride, int count, int head_dim) {
    return {rows + row() * row_stride + dim(), kRowStep * row_stride, count - row(), head_dim - dim()};
  }

  // Every part is set, also where nothing is read: the compiler would keep the old one for that case, through all that lies
  // between the two.
  __device__ __forceinline__ void fetch(const Source& from, bool aligned) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      part_[i] = make_uint4(0, 0, 0, 0);
      if (aligned && i * kRowStep < from.left && from.used > 0) {
        part_[i] = *reinterpret_cast<const uint4*>(from.first + i * from.step);
      }
    }
  }

  __device__ __forceinline__ void place(T* tile, const Source& from, bool aligned) const {
    uint4* to = reinterpret_cast<uint4*>(tile + row() * kPitch + dim());
    constexpr int kStep = kRowStep * kPitch / kChunk;
    if (aligned) {
#pragma unroll
      for (int i = 0; i < kParts; ++i) to[i * kStep] = part_[i];
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kParts; ++i) {
      alignas(16) T chunk[kChunk];
#pragma unroll
      for (int e = 0; e < kChunk; ++e) {
        chunk[e] = i * kRowStep < from.left && e < from.used ? from.first[i * from.step + e] : from_float<T>(0.0f);
      }
      to[i * kStep] = *reinterpret_cast<const uint4*>(chunk);
    }
  }

 private:
  static constexpr int kChunks = kHeadDim / kChunk;  // of a row: neighbouring threads share it
  static constexpr int kRowStep = kThreads / kChunks;
  static constexpr int kParts = kRows / kRowStep;
  static_assert(kRows % kRowStep == 0 && kRowStep * kPitch % kChunk == 0);

  __device__ static int row() { return threadIdx.x / kChunks; }
  __device__ static int dim() { return threadIdx.x % kChunks * kChunk; }

  uint4 part_[kParts];
};

// Whether one of two 16-bit numbers is NaN or infinite: all bits of an exponent are set.
template <class T>
__device__ __forceinline__ bool any_not_finite(uint32_t pair) {
  constexpr uint32_t kExponent = sizeof(T) == 2 && std::is_same_v<T, __half> ? 0x7c00 : 0x7f80;
  return (pair & kExponent) == kExponent || (pair >> 16 & kExponent) == kExponent;
}

// Stores up to 32 rows from shared memory, by one warp. Returns which of them hold NaN or infinity, a bit each.
template <class T, int kHeadDim, int kPitch>
__device__ __forceinline__ uint32_t
store_rows(T* rows, int64_t row_stride, int count, int head_dim, bool aligned, const T* tile, int lane) {
  constexpr int kChunks = kHeadDim / kChunk;
  constexpr int kRowStep = kWarpSize / kChunks;
  const int dim = lane % kChunks * kChunk;
  uint32_t not_finite = 0;
#pragma unroll 1
  for (int first = 0; first < count; first += kRowStep) {
    const int row = first + lane / kChunks;
    const bool stored = row < count && dim < head_dim;
    uint4 chunk = make_uint4(0, 0, 0, 0);
    if (stored) {
      chunk = *reinterpret_cast<const uint4*>(tile + row * kPitch + dim);
      T* to = rows + row * row_stride + dim;
      if (aligned) {
        *reinterpret_cast<uint4*>(to) = chunk;
      } else {
        const T* elements = reinterpret_cast<const T*>(&chunk);
#pragma unroll
        for (int e = 0; e < kChunk; ++e) {
          if (dim + e < head_dim) to[e] = elements[e];
        }
      }
    }
    const bool bad = any_not_finite<T>(chunk.x) || any_not_finite<T>(chunk.y) || any_not_finite<T>(chunk.z) ||
                     any_not_finite<T>(chunk.w);
    const uint32_t lanes = __ballot_sync(kFullWarp, bad);
#pragma unroll
    for (int i = 0; i < kRowStep; ++i) {
      constexpr uint32_t kRowLanes = kChunks == kWarpSize ? kFullWarp : (1u << kChunks % kWarpSize) - 1;
      if ((lanes >> i * kChunks & kRowLanes) != 0) not_finite |= 1u << (first + i);
    }
  }
  return not_finite;
}

// Calls f(row) for every bit that is set.
template <class F>
__device__ __forceinline__ void for_each_bit(uint32_t bits, F&& f) {
  for (; bits != 0; bits &= bits - 1) f(__ffs(bits) - 1);
}

}  // namespace cuflash::wmma
