// SPDX-License-Identifier: MIT
// The products of the backward pass, as sums of 16x8 blocks, and what leaves registers of them.
#pragma once

#include <algorithm>

#include "kernels/common/fragment_store.cuh"
#include "kernels/cp_async/fragment.cuh"

namespace cuflash::cp_async {

// sums += a b over 16 * kDepth elements: load_a(k, a) gives the blocks a of depth 16 k, load_b(k, j, b) the blocks b of
// sums [.][2 j] and [.][2 j + 1].
template <class T, int kDepth, int kMTiles, int kNTiles, class LoadA, class LoadB>
__device__ __forceinline__ void add_product(float (&sums)[kMTiles][kNTiles][4], LoadA&& load_a, LoadB&& load_b) {
  constexpr int kPerDepth = kNTiles / 2;
  constexpr int kBlocks = kDepth * kPerDepth;
  constexpr int kAhead = std::min(kBlocks, 4);  // how many blocks b are loaded ahead of their use
  constexpr int kBuffers = kAhead + 1;
  uint32_t a[2][kMTiles][4], b[kBuffers][4];
  load_a(0, a[0]);
#pragma unroll
  for (int block = 0; block < kAhead; ++block) load_b(block / kPerDepth, block % kPerDepth, b[block % kBuffers]);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int k = block / kPerDepth;
    const int j = block % kPerDepth;
    const int ahead = block + kAhead;
    if (ahead < kBlocks) load_b(ahead / kPerDepth, ahead % kPerDepth, b[ahead % kBuffers]);
    if (j == 0 && k + 1 < kDepth) load_a(k + 1, a[(k + 1) % 2]);
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      multiply_add<T>(sums[m][2 * j], a[k % 2][m], b[block % kBuffers][0], b[block % kBuffers][1]);
      multiply_add<T>(sums[m][2 * j + 1], a[k % 2][m], b[block % kBuffers][2], b[block % kBuffers][3]);
    }
  }
}

// Blocks a of an operand in registers, for add_product().
template <int kMTiles, int kDepth>
__device__ __forceinline__ auto from_registers(const uint32_t (&blocks)[kMTiles][kDepth][4]) {
  return [&](int k, uint32_t(&a)[kMTiles][4]) {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = blocks[m][k][i];
    }
  };
}

// Rounded weights, [key][query], to shared memory; `to` is this lane's element of the first block.
template <class Tile, int kMTiles, int kDepth>
__device__ __forceinline__ void store_weights(
    const LaneAddress<Tile>& to, const uint32_t (&packed)[kMTiles][kDepth][4]
) {
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        store_pair(to.at(16 * m + i % 2 * 8, 16 * k + i / 2 * 8), packed[m][k][i]);
      }
    }
  }
}

// factor * sums to rows, a chunk at a time. Of each 16 * kMembers columns the warp has 16, the member-th.
template <class T, int kMembers, int kMTiles, int kNTiles>
__device__ __forceinline__ void store_columns(
    const HeadRows& to, int member, const float (&sums)[kMTiles][kNTiles][4], float factor
) {
  const int lane = threadIdx.x % kWarpSize;
  // The lane has block n + lane % 4 of each four.
  const int column = (lane % 4 / 2 * kMembers + member) * 16 + lane % 2 * kChunk;
  T* first = to.at<T>(lane / 4, column);
  const auto store_all = [&](auto&& used) {
#pragma unroll
    for (int i = 0; i < 2 * kMTiles; ++i, first += 8 * to.tensor.row_stride) {
      const bool exists = to.has(lane / 4 + 8 * i);
#pragma unroll
      for (int n = 0; n < kNTiles; n += 4) {
        uint32_t chunk[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* pair = &sums[i / 2][min(n + j, kNTiles - 1)][i % 2 * 2];
          chunk[j] = pack<T>(pair[0] * factor, pair[1] * factor);
        }
        transpose_quad(chunk);
        const int step = n / 2 * kMembers * 16;
        if (exists && n + lane % 4 < kNTiles) store_elements(first + step, chunk, used(step));
      }
    }
  };
  if (to.head_dim >= kNTiles * kMembers * kChunk) {
    store_all([](int) { return kChunk; });
  } else {
    store_all([&](int step) { return to.head_dim - step - column; });
  }
}

}  // namespace cuflash::cp_async
