// SPDX-License-Identifier: MIT
// Sums of fragments to rows in global memory, rounded to the element type. Shared memory is not needed: the lanes that share
// a row exchange parts of it.
#pragma once

#include "kernels/common/fragment.cuh"
#include "kernels/common/mask.h"
#include "kernels/common/numeric_traits.cuh"
#include "kernels/common/sequence.h"
#include "kernels/common/warp.h"

namespace cuflash {

// Rows [own.begin, own.end) of one head, which a warp stores.
struct HeadRows {
  const Tensor& tensor;
  const Rows& rows;
  Range own;
  int32_t head;
  int32_t head_dim;

  template <class T>
  __device__ __forceinline__ T* at(int row, int column) const {
    return mutable_row_pointer<T>(tensor, rows, own.begin + row, head) + column;
  }
  __device__ __forceinline__ bool has(int row) const { return row < own.end - own.begin; }
};

// Neighbours of a row, two in each word: at once if all exist, or else the first `used`, one by one.
template <class T, int kWords>
__device__ __forceinline__ void store_elements(T* to, const uint32_t (&words)[kWords], int used) {
  static_assert(sizeof(T) == 2 && (kWords == 2 || kWords == 4));
  constexpr int kElements = 2 * kWords;
  if (used >= kElements) {
    if constexpr (kWords == 2) {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else {
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    }
    return;
  }
#pragma unroll
  for (int e = 0; e < kElements - 1; ++e) {
    if (e < used) reinterpret_cast<uint16_t*>(to)[e] = static_cast<uint16_t>(words[e / 2] >> (e % 2 * 16));
  }
}

// Sums to the columns from first_column on, 8 bytes at a time: neighbouring lanes exchange a pair, and the even one has four
// neighbours of a block of eight columns, the odd one of the next block.
template <class T, int kMTiles, int kNTiles>
__device__ __forceinline__ void store_rows(
    const HeadRows& to, int first_column, const float (&sums)[kMTiles][kNTiles][4]
) {
  static_assert(kNTiles % 2 == 0);
  const int lane = threadIdx.x % kWarpSize;
  const bool odd = lane % 2;
  const int column = first_column + lane % 4 * 2 + (odd ? 6 : 0);
  T* first = to.at<T>(lane / 4, column);
  const auto store_all = [&](auto&& used) {
#pragma unroll
    for (int i = 0; i < 2 * kMTiles; ++i, first += 8 * to.tensor.row_stride) {
      const bool exists = to.has(lane / 4 + 8 * i);
#pragma unroll
      for (int n = 0; n < kNTiles; n += 2) {
        const float* left = &sums[i / 2][n][i % 2 * 2];
        const float* right = &sums[i / 2][n + 1][i % 2 * 2];
        const uint32_t own_pair = odd ? pack<T>(right[0], right[1]) : pack<T>(left[0], left[1]);
        const uint32_t given = odd ? pack<T>(left[0], left[1]) : pack<T>(right[0], right[1]);
        const uint32_t received = __shfl_xor_sync(kFullWarp, given, 1);
        const uint32_t pairs[2] = {odd ? received : own_pair, odd ? own_pair : received};
        if (exists) store_elements(first + 8 * n, pairs, used(8 * n));
      }
    }
  };
  if (to.head_dim >= first_column + 8 * kNTiles) {
    store_all([](int) { return 4; });
  } else {
    store_all([&](int step) { return to.head_dim - step - column; });
  }
}

}  // namespace cuflash
