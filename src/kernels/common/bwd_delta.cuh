// SPDX-License-Identifier: MIT
// What every backward pass begins with: delta_i = dout_i . o_i - dlse_i, and a clear buffer for sums of dq.
#pragma once

#include "kernels/common/alignment.h"
#include "kernels/common/numeric_traits.cuh"
#include "kernels/common/query_rows.cuh"
#include "launch.cuh"

namespace cuflash {

// One lane's part of the dot products of rows of x and y.
template <class T, int kSize>
__device__ void row_products(
    float (&sums)[kRowsAtOnce],
    const T* const (&x)[kRowsAtOnce],
    const T* const (&y)[kRowsAtOnce],
    int head_dim,
    int lane,
    int lanes
) {
  using Vector = RowVector<T, kSize>;
#pragma unroll 1
  for (int d = lane * kSize; d < head_dim; d += lanes * kSize) {
    Vector u[kRowsAtOnce], w[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      u[i] = *reinterpret_cast<const Vector*>(x[i] + d);
      w[i] = *reinterpret_cast<const Vector*>(y[i] + d);
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
#pragma unroll
      for (int e = 0; e < kSize; ++e) sums[i] = fmaf(to_float(u[i].at[e]), to_float(w[i].at[e]), sums[i]);
    }
  }
}

// By all threads of the block, as is what follows.
template <int kSize>
__device__ void clear_floats(float* to, int count) {
  for (int i = threadIdx.x * kSize; i < count; i += kRowThreads * kSize) {
    *reinterpret_cast<RowVector<float, kSize>*>(to + i) = {};
  }
}

// Of a block's rows: no more than groups.rows_per_block().
template <class T>
__device__ void store_delta(
    const BwdArgs& args, const RowGroups& groups, const Sequence& s, int32_t head, const Range& rows, float* delta
) {
  const Attention& a = args.attention;
  const int group = threadIdx.x / groups.lanes;
  const int lane = threadIdx.x % groups.lanes;
  const int32_t count = rows.end - rows.begin;
  const int64_t first = lse_offset(a, s.q, rows.begin, head);
  const T *o[kRowsAtOnce], *dout[kRowsAtOnce];
#pragma unroll
  for (int i = 0; i < kRowsAtOnce; ++i) {
    const int32_t row = min(group + i * groups.groups(), count - 1);  // past the end, the last one again
    o[i] = row_pointer<T>(args.o, s.q, rows.begin + row, head);
    dout[i] = row_pointer<T>(args.dout, s.q, rows.begin + row, head);
  }
  float sums[kRowsAtOnce] = {};
  if (groups.vectors) {
    row_products<T, kVectorSize<T>>(sums, dout, o, a.head_dim_v, lane, groups.lanes);
  } else {
    row_products<T, 1>(sums, dout, o, a.head_dim_v, lane, groups.lanes);
  }
#pragma unroll
  for (int i = 0; i < kRowsAtOnce; ++i) {
    const float sum = group_sum(sums[i], groups);
    const int32_t row = group + i * groups.groups();
    if (row < count && lane == 0) {
      delta[first + row] = args.dlse == nullptr ? sum : sum - args.dlse[first + row];
    }
  }
}

// dq_sums (may be null) has a row of dq_pitch floats for each element of delta.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    bwd_delta_kernel(const BwdArgs args, const RowGroups groups, float* delta, float* dq_sums, const int32_t dq_pitch) {
  const Attention& a = args.attention;
  for_each_row_block(a, groups, [&](const TileCoord& at, const Sequence& s, const Range& rows) {
    store_delta<T>(args, groups, s, at.head, rows, delta);
    if (dq_sums == nullptr) return;
    const int32_t count = rows.end - rows.begin;
    float* dq_rows = dq_sums + lse_offset(a, s.q, rows.begin, at.head) * dq_pitch;
    if (dq_pitch % kVectorSize<float> == 0) {
      clear_floats<kVectorSize<float>>(dq_rows, count * dq_pitch);
    } else {
      clear_floats<1>(dq_rows, count * dq_pitch);
    }
  });
}

template <class T>
Status launch_bwd_delta(
    const LaunchContext& context, const char* name, const BwdArgs& args, float* delta, float* dq_sums, int32_t dq_pitch
) {
  const bool aligned = rows_are_aligned(args.o, sizeof(T)) && rows_are_aligned(args.dout, sizeof(T));
  const RowGroups groups = row_groups<T>(aligned, args.attention.head_dim_v);
  const LaunchShape shape = {num_row_blocks(args.attention, groups), kRowThreads, 0};
  if (shape.grid == 0) return Status();
  return launch(context, name, bwd_delta_kernel<T>, shape, args, groups, delta, dq_sums, dq_pitch);
}

}  // namespace cuflash
