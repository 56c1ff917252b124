// SPDX-License-Identifier: MIT
// Operands of products from swizzled tiles, and what becomes of sums.
#pragma once

#include "kernels/common/warp.h"
#include "kernels/cp_async/ptx.cuh"
#include "kernels/cp_async/swizzle.h"

namespace cuflash::cp_async {

// A 16x16 block as four matrices, down the rows first: operand a of a tile [m][k] as it is, operand b (two blocks of
// eight columns) of a tile [k][n] transposed.
template <class Tile>
__device__ __forceinline__ LaneAddress<Tile> down_first(uint32_t tile, int row, int dim = 0) {
  return LaneAddress<Tile>::down_first(threadIdx.x % kWarpSize, tile, row, dim);
}

// Along the rows first: operand b (two blocks of eight columns) of a tile [n][k] as it is, operand a of a tile [k][m]
// transposed.
template <class Tile>
__device__ __forceinline__ LaneAddress<Tile> along_first(uint32_t tile, int row, int dim = 0) {
  return LaneAddress<Tile>::along_first(threadIdx.x % kWarpSize, tile, row, dim);
}

template <int kMTiles, int kNTiles>
__device__ __forceinline__ void clear(float (&sums)[kMTiles][kNTiles][4]) {
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][n][e] = 0.0f;
    }
  }
}

// Operand a from sums: the columns of two neighbouring 16x8 blocks of sums are the depth of one 16x16 block.
template <class T, int kNTiles>
__device__ __forceinline__ void pack_operand(uint32_t (&a)[4], const float (&sums)[kNTiles][4], int k) {
  a[0] = pack<T>(sums[2 * k][0], sums[2 * k][1]);
  a[1] = pack<T>(sums[2 * k][2], sums[2 * k][3]);
  a[2] = pack<T>(sums[2 * k + 1][0], sums[2 * k + 1][1]);
  a[3] = pack<T>(sums[2 * k + 1][2], sums[2 * k + 1][3]);
}

// The sums that become operand k.
template <int kNTiles>
__device__ __forceinline__ float (&columns_of(float (&sums)[kNTiles][4], int k))[2][4] {
  return *reinterpret_cast<float(*)[2][4]>(&sums[2 * k]);
}

template <class T, int kNTiles>
__device__ __forceinline__ void pack_operands(uint32_t (&a)[kNTiles / 2][4], const float (&sums)[kNTiles][4]) {
#pragma unroll
  for (int k = 0; k < kNTiles / 2; ++k) pack_operand<T>(a[k], sums, k);
}

// Sums times what pack_operand() made of others.
template <class T, int kNTiles>
__device__ __forceinline__ void multiply_operand(float (&sums)[kNTiles][4], const uint32_t (&a)[4], int k) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = unpack<T>(a[i]);
    sums[2 * k + i / 2][i % 2 * 2] *= pair.x;
    sums[2 * k + i / 2][i % 2 * 2 + 1] *= pair.y;
  }
}

// Lane q of a quad has, in x[i], part q of block i, and receives the whole block q: part i in x[i].
__device__ __forceinline__ void transpose_quad(uint32_t (&x)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = threadIdx.x & bit;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const uint32_t received = __shfl_xor_sync(kFullWarp, upper ? x[i] : x[i | bit], bit);
      (upper ? x[i] : x[i | bit]) = received;
    }
  }
}

}  // namespace cuflash::cp_async
