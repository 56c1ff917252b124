// SPDX-License-Identifier: MIT
// What a block of the backward pass streams: query rows with their statistics, head after head. Whatever is the same for
// all threads lies in shared memory, where one warp puts it two steps ahead: registers are for sums.
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
  // Of `count` keys from `first` on, those that exist.
  __device__ __forceinline__ Range rows_of_keys(int first, int count) const {
    return {own.begin + min(first, own_count()), min(own.begin + first + count, own.end)};
  }
};

// Of a step: its rows of q and dout.
template <class T>
struct StepRows {
  const T* q;
  const T* dout;
  int64_t row_offset;  // of the first one in lse and delta
  int left;            // of this head from there on that see a key; 0: the block has no such step
};

// Rows of one query head against the keys of the block. What the next step has more or less of lies in fields of one size,
// a lane each: a warp that moved them on one by one would be late, and all others would wait for it.
template <class T>
struct BwdStep {
  enum Field { kQ, kDout, kRowOffset, kMaskBegin, kMaskEnd, kBegin, kLeft, kColumns, kHead, kFields };
  int64_t fields[kFields];
  int32_t edge;  // whether the mask or an end hides something, or a row's lse wants a closer look

  // All that has to do with its rows, read at once: each look takes its time.
  __device__ __forceinline__ StepRows<T> rows() const {
    return {
        reinterpret_cast<const T*>(fields[kQ]), reinterpret_cast<const T*>(fields[kDout]), fields[kRowOffset], left()};
  }
  __device__ __forceinline__ int begin() const { return static_cast<int>(fields[kBegin]); }  // the first row
  __device__ __forceinline__ int left() const { return static_cast<int>(fields[kLeft]); }
  __device__ __forceinline__ int head() const { return static_cast<int>(fields[kHead]); }
  // Keys are rows, query rows are columns. Its limits are not cut to 32 bits before.
  __device__ __forceinline__ TileMask mask() const {
    return tile_mask(fields[kMaskBegin], fields[kMaskEnd], static_cast<int>(fields[kColumns]));
  }

  // By one thread: the first step of a head.
  __device__ __forceinline__ void begin_head(const BwdArgs& args, const BwdBlock& block, int32_t head) {
    const Attention& a = args.attention;
    const int begin = block.rows.begin;
    const bool exists = !block.rows.empty() && head < (block.at.head + 1) * group_size(a);
    const int64_t diagonal = block.own.begin - block.s.offset - begin;
    fields[kQ] = reinterpret_cast<int64_t>(row_pointer<T>(args.q, block.s.q, begin, head));
    fields[kDout] = reinterpret_cast<int64_t>(row_pointer<T>(args.dout, block.s.q, begin, head));
    fields[kRowOffset] = lse_offset(a, block.s.q, begin, head);
    fields[kMaskBegin] = diagonal - a.window_right;
    fields[kMaskEnd] = diagonal + a.window_left + 1;
    fields[kBegin] = begin;
    fields[kLeft] = exists ? block.rows.end - begin : 0;
    fields[kColumns] = block.s.q.length - begin;
    fields[kHead] = head;
  }

  // By one thread: what fields grow by from step to step of a head.
  __device__ __forceinline__ void set_pace(const BwdArgs& args, int block_m) {
    fields[kQ] = block_m * args.q.row_stride * static_cast<int64_t>(sizeof(T));
    fields[kDout] = block_m * args.dout.row_stride * static_cast<int64_t>(sizeof(T));
    fields[kRowOffset] = fields[kBegin] = block_m;
    fields[kMaskBegin] = fields[kMaskEnd] = fields[kLeft] = fields[kColumns] = -block_m;
    fields[kHead] = 0;
  }

  // By a warp: the step behind `step`.
  __device__ __forceinline__ void set_after(
      const BwdStep& step, const BwdStep& pace, const BwdArgs& args, const BwdBlock& block, int block_n, int block_m
  ) {
    int64_t field = step.lane_field() + pace.lane_field();
    if (step.left() > block_m) {
      lane_field() = field;
    } else {
      if (threadIdx.x % kWarpSize == 0) begin_head(args, block, step.head() + 1);
      __syncwarp();
      field = lane_field();
    }
    set_edge(field, block, block_n, block_m);
  }

  // By a warp, each lane of which has its field.
  __device__ __forceinline__ void set_edge(int64_t field, const BwdBlock& block, int block_n, int block_m) {
    const int lane = threadIdx.x % kWarpSize;
    const int64_t least = lane == kMaskEnd || lane == kColumns ? block_m : INT64_MIN;
    const int64_t most = lane == kMaskBegin ? 1 - block_n : INT64_MAX;
    const bool sees_all = __all_sync(kFullWarp, field >= least && field <= most);
    if (lane == 0) edge = !sees_all || block.own_count() < block_n;
  }

  // The last one for the lanes that have none.
  __device__ __forceinline__ int64_t& lane_field() { return fields[min(int(threadIdx.x % kWarpSize), kFields - 1)]; }
  __device__ __forceinline__ int64_t lane_field() const {
    return fields[min(int(threadIdx.x % kWarpSize), kFields - 1)];
  }
};

// Beyond this, rounding lse to fp32 can make weights visibly larger than 1; lse = -inf is a row that saw nothing.
inline constexpr float kUsualLse = 4096.0f;

// lse and delta of the rows of a step in the form in which they enter: -lse in base 2, and -delta. `raised` is by how much the
// first, and with it the logarithm of a weight, is raised; the second is multiplied by 2^-raised.
template <int kRows>
struct StepStatistics {
  float shift[kRows];
  float delta[kRows];

  __device__ __forceinline__ float2 shift_of_pair(int row) const {
    return *reinterpret_cast<const float2*>(shift + row);
  }
};

// dp becomes 2^-raised (dp - delta). `query` is the lane's first one.
template <int kRaised, int kRows, int kMTiles, int kNTiles>
__device__ __forceinline__ void subtract_delta(
    float (&dp)[kMTiles][kNTiles][4], const StepStatistics<kRows>& statistics, int query
) {
  constexpr float kLowered = 1.0f / static_cast<float>(1 << kRaised);
#pragma unroll
  for (int n = 0; n < kNTiles; ++n) {
    const float2 negative_delta = *reinterpret_cast<const float2*>(statistics.delta + query + 8 * n);
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        dp[m][n][e] = fmaf(dp[m][n][e], kLowered, e % 2 == 0 ? negative_delta.x : negative_delta.y);
      }
    }
  }
}

// Statistics pass through a register each of the first 2 * kRows threads, a step ahead.
template <int kRows, class T>
__device__ __forceinline__ float load_statistic(const BwdArgs& args, const float* delta, const StepRows<T>& rows) {
  const int row = threadIdx.x % kRows;
  if (threadIdx.x >= 2 * kRows || row >= rows.left) return 0.0f;
  return (threadIdx.x < kRows ? args.lse : delta)[rows.row_offset + row];
}

// Returns whether the value is an lse that wants a closer look.
template <int kRaised, int kRows>
__device__ __forceinline__ bool store_statistic(StepStatistics<kRows>& to, float value) {
  constexpr float kLowered = 1.0f / static_cast<float>(1 << kRaised);
  if (threadIdx.x >= 2 * kRows) return false;
  const bool is_lse = threadIdx.x < kRows;
  (is_lse ? to.shift : to.delta)[threadIdx.x % kRows] =
      is_lse ? fmaf(-kLog2e, value, static_cast<float>(kRaised)) : -kLowered * value;
  return is_lse && !(fabsf(value) <= kUsualLse);
}

}  // namespace cuflash::cp_async
