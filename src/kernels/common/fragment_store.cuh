// SPDX-License-Identifier: MIT
// Sums of fragments to rows in global memory, rounded to the element type, 8 bytes at a time. Shared memory is not
// needed: the lanes that share a row exchange parts of it.
#pragma once

#include "kernels/common/fragment.cuh"
#include "kernels/common/mask.h"
#include "kernels/common/numeric_traits.cuh"
#include "kernels/common/sequence.h"
#include "kernels/common/warp.h"

namespace cuflash {

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
  const int column = first_column + lane % 4 * 2 + (odd ? 6 : 0);
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
        if (exists) store(8 * n, odd ? make_uint2(received, own_pair) : make_uint2(own_pair, received));
      }
    }
  };
  if (head_dim >= first_column + 8 * kNTiles) {
    store_all([&](int step, const uint2& quad) { *reinterpret_cast<uint2*>(first + step) = quad; });
  } else {
    store_all([&](int step, const uint2& quad) { store_quad(first + step, quad, head_dim - step - column); });
  }
}

}  // namespace cuflash
