// SPDX-License-Identifier: MIT
// What a block of the backward pass streams: query rows with their statistics, head after head. Whatever is the same for
// all threads lies in shared memory, where one thread puts it a step ahead: registers are for sums.
#pragma once

#include "kernels/common/fragment_softmax.cuh"
#include "kernels/common/mask.h"
#include "kernels/common/tile_coord.h"
#include "kernels/cp_async/load.cuh"

namespace cuflash::cp_async {

// One tile of rows, `count` of which exist from `source` on.
template <int kThreads, int kRows, int kHeadDim, class T>
__device__ __forceinline__ void copy_tile(uint32_t tile, const T* source, int64_t row_stride, int count, int head_dim) {
  TileStream<T, kThreads, kRows, kHeadDim>(source, row_stride).copy(tile, row_stride, count, head_dim);
}

// The keys that a block owns and the rows that see them.
struct BwdBlock {
  TileCoord at;
  Sequence s;
  Range own;
  Range rows;

  __device__ __forceinline__ int own_count() const { return own.end - own.begin; }
};

// Rows of one query head against the keys of the block.
template <class T>
struct BwdStep {
  const T* q;
  const T* dout;
  int64_t row_offset;  // of the first row in lse and delta
  int64_t mask_begin;  // the mask's begin and end (query_mask()), not yet limited to 32 bits
  int64_t mask_end;
  int32_t head;
  int32_t begin;    // first row
  int32_t left;     // rows of this head from there on that see a key; 0: the block has no such step
  int32_t columns;  // rows of this head from there on
  bool edge;        // the mask or an end hides something

  // Keys are rows, query rows are columns.
  __device__ __forceinline__ TileMask mask() const { return tile_mask(mask_begin, mask_end, columns); }

  __device__ __forceinline__ void set(
      const BwdArgs& args, const BwdBlock& block, int32_t new_head, int block_n, int block_m
  ) {
    const Attention& a = args.attention;
    head = new_head;
    begin = block.rows.begin;
    const bool exists = !block.rows.empty() && head < (block.at.head + 1) * group_size(a);
    left = exists ? block.rows.end - begin : 0;
    columns = block.s.q.length - begin;
    q = row_pointer<T>(args.q, block.s.q, begin, head);
    dout = row_pointer<T>(args.dout, block.s.q, begin, head);
    row_offset = lse_offset(a, block.s.q, begin, head);
    const int64_t diagonal = block.own.begin - block.s.offset - begin;
    mask_begin = diagonal - a.window_right;
    mask_end = diagonal + a.window_left + 1;
    set_edge(block, block_n, block_m);
  }

  __device__ __forceinline__ void set_after(
      const BwdStep& step, const BwdArgs& args, const BwdBlock& block, int block_n, int block_m
  ) {
    if (step.left <= block_m) {
      set(args, block, step.head + 1, block_n, block_m);
      return;
    }
    *this = step;
    q += block_m * args.q.row_stride;
    dout += block_m * args.dout.row_stride;
    row_offset += block_m;
    mask_begin -= block_m;
    mask_end -= block_m;
    begin += block_m;
    left -= block_m;
    columns -= block_m;
    set_edge(block, block_n, block_m);
  }

  __device__ __forceinline__ void set_edge(const BwdBlock& block, int block_n, int block_m) {
    const bool sees_all = mask_begin + block_n <= 1 && mask_end >= block_m && columns >= block_m;
    edge = !sees_all || block.own_count() < block_n;
  }
};

// Beyond this, rounding lse to fp32 can make weights visibly larger than 1; lse = -inf is a row that saw nothing.
inline constexpr float kUsualLse = 4096.0f;

// lse and delta of the rows of a step in the form in which they enter: -lse in base 2, and -delta.
template <int kRows>
struct StepStatistics {
  float shift[kRows];
  float delta[kRows];
};

// Statistics pass through a register each of the first 2 * kRows threads, a step ahead.
template <int kRows, class T>
__device__ __forceinline__ float load_statistic(const BwdArgs& args, const float* delta, const BwdStep<T>& step) {
  const int row = threadIdx.x % kRows;
  if (threadIdx.x >= 2 * kRows || row >= step.left) return 0.0f;
  return (threadIdx.x < kRows ? args.lse : delta)[step.row_offset + row];
}

// Returns whether the value is an lse that wants a closer look.
template <int kRows>
__device__ __forceinline__ bool store_statistic(StepStatistics<kRows>& to, float value) {
  if (threadIdx.x >= 2 * kRows) return false;
  const bool is_lse = threadIdx.x < kRows;
  (is_lse ? to.shift : to.delta)[threadIdx.x % kRows] = is_lse ? -kLog2e * value : -value;
  return is_lse && !(fabsf(value) <= kUsualLse);
}

}  // namespace cuflash::cp_async
