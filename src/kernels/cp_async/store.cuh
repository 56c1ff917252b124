// SPDX-License-Identifier: MIT
// Sums of fragments to rows in global memory, rounded to the element type, 8 or 16 bytes at a time. Shared memory is not
// needed: the lanes that share a row exchange parts of it.
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/numeric_traits.cuh"
#include "kernels/common/sequence.h"
#include "kernels/cp_async/fragment.cuh"

namespace cuflash::cp_async {

// One chunk of a row, of which the first `used` elements exist.
template <class T>
__device__ __forceinline__ void store_chunk(T* to, const uint32_t (&chunk)[4], int used) {
  if (used >= kChunk) {
    *reinterpret_cast<uint4*>(to) = make_uint4(chunk[0], chunk[1], chunk[2], chunk[3]);
    return;
  }
#pragma unroll
  for (int e = 0; e < kChunk; ++e) {
    const uint16_t bits = static_cast<uint16_t>(chunk[e / 2] >> (e % 2 * 16));
    if (e < used) reinterpret_cast<uint16_t*>(to)[e] = bits;
  }
}

// Four elements of a row, of which the first `used` exist.
template <class T>
__device__ __forceinline__ void store_quad(T* to, const uint2& quad, int used) {
  if (used >= 4) {
    *reinterpret_cast<uint2*>(to) = quad;
    return;
  }
#pragma unroll
  for (int e = 0; e < 3; ++e) {
    const uint32_t pair = e < 2 ? quad.x : quad.y;
    if (e < used) reinterpret_cast<uint16_t*>(to)[e] = static_cast<uint16_t>(pair >> (e % 2 * 16));
  }
}

// The rows of a warp to rows [own.begin, own.end) of a head, 8 bytes at a time: neighbouring lanes exchange a pair, and
// the even one has four neighbours of a block of eight columns, the odd one of the next block.
template <class T, int kMTiles, int kNTiles>
__device__ __forceinline__ void store_rows(
    const Tensor& tensor,
    const Rows& rows,
    const Range& own,
    int32_t head,
    int32_t head_dim,
    int first_column,
    const float (&sums)[kMTiles][kNTiles][4]
) {
  static_assert(kNTiles % 2 == 0);
  const int lane = threadIdx.x % kWarpSize;
  const bool odd = lane % 2;
  const int column = first_column + lane % 4 * 2 + (odd ? kChunk - 2 : 0);
  T* first = mutable_row_pointer<T>(tensor, rows, own.begin + lane / 4, head) + column;
  const auto store_all = [&](auto&& store) {
#pragma unroll
    for (int i = 0; i < 2 * kMTiles; ++i, first += 8 * tensor.row_stride) {
      const bool exists = lane / 4 + 8 * i < own.end - own.begin;
#pragma unroll
      for (int n = 0; n < kNTiles; n += 2) {
        const float* left = &sums[i / 2][n][i % 2 * 2];
        const float* right = &sums[i / 2][n + 1][i % 2 * 2];
        const uint32_t own_pair = odd ? pack<T>(right[0], right[1]) : pack<T>(left[0], left[1]);
        const uint32_t given = odd ? pack<T>(left[0], left[1]) : pack<T>(right[0], right[1]);
        const uint32_t received = __shfl_xor_sync(kFullWarp, given, 1);
        if (exists) store(n * kChunk, odd ? make_uint2(received, own_pair) : make_uint2(own_pair, received));
      }
    }
  };
  if (head_dim >= first_column + kNTiles * kChunk) {
    store_all([&](int step, const uint2& quad) { *reinterpret_cast<uint2*>(first + step) = quad; });
  } else {
    store_all([&](int step, const uint2& quad) { store_quad(first + step, quad, head_dim - step - column); });
  }
}

}  // namespace cuflash::cp_async
