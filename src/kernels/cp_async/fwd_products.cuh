// SPDX-License-Identifier: MIT
// The two products of the forward pass. Blocks of the streamed operand are loaded a few ahead (kAhead) of their use: a load
// takes about as long as six products.
#pragma once

#include "kernels/cp_async/fragment.cuh"

namespace cuflash::cp_async {

// q as operand a, from registers or, block by block, from shared memory.
template <class T, class Tile, int kMTiles, int kDepth, bool kInRegisters>
struct QOperand {
  uint32_t block[kMTiles][kDepth][4];

  __device__ __forceinline__ void load(uint32_t tile, int row) {
    const LaneAddress<Tile> from = down_first<Tile>(tile, row);
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) load_matrices(block[m][d], from.at(16 * m, 16 * d));
    }
  }
  __device__ __forceinline__ void get(uint32_t (&a)[4], int m, int d) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = block[m][d][i];
  }
};

template <class T, class Tile, int kMTiles, int kDepth>
struct QOperand<T, Tile, kMTiles, kDepth, false> {
  LaneAddress<Tile> from;

  __device__ __forceinline__ void load(uint32_t tile, int row) { from = down_first<Tile>(tile, row); }
  __device__ __forceinline__ void get(uint32_t (&a)[4], int m, int d) const {
    load_matrices(a, from.at(16 * m, 16 * d));
  }
};

// p = q k^T for the rows of a warp and the keys at `keys`.
template <class T, int kAhead, class KTile, int kMTiles, int kNTiles, class Q>
__device__ __forceinline__ void multiply_scores(float (&p)[kMTiles][kNTiles][4], const Q& q, LaneAddress<KTile> keys) {
  constexpr int kPerDepth = kNTiles / 2;
  constexpr int kBlocks = KTile::kDim / 16 * kPerDepth;
  constexpr int kBuffers = kAhead + 1;
  uint32_t k[kBuffers][4], a[2][kMTiles][4];
  const auto load = [&](int block) {
    load_matrices(k[block % kBuffers], keys.at(block % kPerDepth * 16, block / kPerDepth * 16));
  };
  clear(p);
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) q.get(a[0][m], m, 0);
#pragma unroll
  for (int block = 0; block < kAhead; ++block) load(block);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int d = block / kPerDepth;
    const int j = block % kPerDepth;
    if (block + kAhead < kBlocks) load(block + kAhead);
    if (j == 0 && block + kPerDepth < kBlocks) {
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) q.get(a[(d + 1) % 2][m], m, d + 1);
    }
    const uint32_t(&b)[4] = k[block % kBuffers];
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      multiply_add<T>(p[m][2 * j], a[d % 2][m], b[0], b[1]);
      multiply_add<T>(p[m][2 * j + 1], a[d % 2][m], b[2], b[3]);
    }
  }
}

// o += p v for 16 * kSteps keys, whose rows of v are at `values`: load_p(k, a) gives the blocks of p.
template <class T, int kAhead, int kSteps, class VTile, int kMTiles, int kNTiles, class LoadP>
__device__ __forceinline__ void add_values(float (&o)[kMTiles][kNTiles][4], LoadP&& load_p, LaneAddress<VTile> values) {
  constexpr int kPerKeys = kNTiles / 2;
  constexpr int kBlocks = kSteps * kPerKeys;
  constexpr int kBuffers = kAhead + 1;
  uint32_t v[kBuffers][4], a[kMTiles][4];
  const auto load = [&](int block) {
    load_matrices_transposed(v[block % kBuffers], values.at(block / kPerKeys * 16, block % kPerKeys * 16));
  };
#pragma unroll
  for (int block = 0; block < kAhead; ++block) load(block);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int d = block % kPerKeys;
    if (block + kAhead < kBlocks) load(block + kAhead);
    if (d == 0) load_p(block / kPerKeys, a);
    const uint32_t(&b)[4] = v[block % kBuffers];
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      multiply_add<T>(o[m][2 * d], a[m], b[0], b[1]);
      multiply_add<T>(o[m][2 * d + 1], a[m], b[2], b[3]);
    }
  }
}

}  // namespace cuflash::cp_async
