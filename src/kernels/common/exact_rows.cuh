// SPDX-License-Identifier: MIT
// One row of the results by the definition, in fp32, by one warp: what a kernel of whole tiles falls back to.
//
// A tile's product multiplies hidden pairs too, and 0 times NaN is NaN: rows of results can come out as NaN or infinite
// because of keys or rows that they do not see. Where the mask can hide pairs (masks_pairs()), a kernel computes the rows
// of its results that are not finite once more with these functions, which leave hidden pairs out. They are slow, for
// inputs that hold NaN or infinity, and made to be inlined behind a main loop: no shared memory, few registers.
//
// 32 rows of the other side at a time: lane j computes the score of row j, then lanes are over head_dim and the rows are
// summed, weighted. Rows are read as they lie in global memory, at any alignment. kHeadDim is the capacity of the kernel.
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/numeric_traits.cuh"
#include "kernels/common/online_softmax.h"
#include "kernels/common/row_sum.cuh"
#include "kernels/common/score.h"
#include "kernels/common/sequence.h"
#include "kernels/common/tile_coord.h"
#include "kernels/common/warp_reduce.cuh"

namespace cuflash {

template <class T>
__device__ float exact_dot(const T* x, const T* y, int head_dim) {
  float sum = 0.0f;
#pragma unroll 1
  for (int d = 0; d < head_dim; ++d) sum = fmaf(to_float(x[d]), to_float(y[d]), sum);
  return sum;
}

// Calls f(first, count) for 32 elements of a range at a time, as long as f returns true.
template <class F>
__device__ void for_each_warp_step(const Range& range, F&& f) {
#pragma unroll 1
  for (int32_t left = range.end - range.begin; left > 0; left -= kWarpSize) {
    if (!f(range.end - left, min(left, kWarpSize))) return;
  }
}

// sum += the first `count` rows, weighted; lane r holds the weight of row r. One at a time: registers are few.
template <class T, int kHeadDim>
__device__ void add_rows(
    RowSum<kHeadDim>& sum, float weight, const T* rows, int64_t row_stride, int count, int head_dim, int lane
) {
#pragma unroll 1
  for (int r = 0; r < count; ++r) sum.add(weight, rows, row_stride, r, r + 1, head_dim, lane);
}

// o and, if there is one, lse of a query row.
template <class T, int kHeadDim = 256>
__device__ void fwd_exact_row(const FwdArgs& args, const Sequence& s, const TileCoord& at, int32_t row, int lane) {
  const Attention& a = args.attention;
  const int32_t head_k = key_head(a, at.head);
  const float slope = alibi_slope(a, at.batch, at.head);
  const T* q = row_pointer<T>(args.q, s.q, row, at.head);
  RowState<float> state = RowState<float>::empty();
  RowSum<kHeadDim> o;
  for_each_warp_step(visible_keys(a, s, row), [&](int32_t first, int count) {
    float score = kNegativeInfinity<float>;
    if (lane < count) {
      const T* k = row_pointer<T>(args.k, s.k, first + lane, head_k);
      score = score_of(a, exact_dot(q, k, a.head_dim), slope, s, row, first + lane).value;
    }
    o.scale(state.raise(warp_max_or_nan(score)));
    const float p = lane < count ? expf(score - state.shift()) : 0.0f;
    state.row_sum += warp_sum(p);
    if (!o.all_nan(a.head_dim_v, lane)) {
      const T* v = row_pointer<T>(args.v, s.k, first, head_k);
      add_rows(o, p, v, args.v.row_stride, count, a.head_dim_v, lane);
    }
    return state.row_sum == state.row_sum;  // else o and lse are NaN, whatever follows
  });
  o.store(mutable_row_pointer<T>(args.o, s.q, row, at.head), state.inverse_sum(), a.head_dim_v, lane);
  if (args.lse != nullptr && lane == 0) args.lse[lse_offset(a, s.q, row, at.head)] = state.lse();
}

// p and ds of one pair.
template <class T>
__device__ PairWeights<float> exact_weights(
    const BwdArgs& args, const float* delta, const Sequence& s, int32_t batch, int32_t head, int32_t row, int32_t key
) {
  const Attention& a = args.attention;
  const int32_t head_k = key_head(a, head);
  const int64_t offset = lse_offset(a, s.q, row, head);
  const float product =
      exact_dot(row_pointer<T>(args.q, s.q, row, head), row_pointer<T>(args.k, s.k, key, head_k), a.head_dim);
  const float dp =
      exact_dot(row_pointer<T>(args.dout, s.q, row, head), row_pointer<T>(args.v, s.k, key, head_k), a.head_dim_v);
  const Score<float> score = score_of(a, product, alibi_slope(a, batch, head), s, row, key);
  return pair_weights(score, args.lse[offset], dp - delta[offset]);
}

// dk and dv of a key row: the sum over the query heads that read its head.
template <class T, int kHeadDim = 256>
__device__ void bwd_exact_key(
    const BwdArgs& args, const float* delta, const Sequence& s, int32_t batch, int32_t head_k, int32_t key, int lane
) {
  const Attention& a = args.attention;
  const Range rows = visible_rows(a, s, key);
  RowSum<kHeadDim> dk, dv;
  const int32_t group = group_size(a);
#pragma unroll 1
  for (int32_t head = head_k * group; head < (head_k + 1) * group; ++head) {
    for_each_warp_step(rows, [&](int32_t first, int count) {
      PairWeights<float> w{0.0f, 0.0f};
      if (lane < count) w = exact_weights<T>(args, delta, s, batch, head, first + lane, key);
      const T* dout = row_pointer<T>(args.dout, s.q, first, head);
      const T* q = row_pointer<T>(args.q, s.q, first, head);
      add_rows(dv, w.p, dout, args.dout.row_stride, count, a.head_dim_v, lane);
      add_rows(dk, w.ds, q, args.q.row_stride, count, a.head_dim, lane);
      return !(dv.all_nan(a.head_dim_v, lane) && dk.all_nan(a.head_dim, lane));
    });
  }
  dv.store(mutable_row_pointer<T>(args.dv, s.k, key, head_k), 1.0f, a.head_dim_v, lane);
  dk.store(mutable_row_pointer<T>(args.dk, s.k, key, head_k), a.scale, a.head_dim, lane);
}

// dq of a query row.
template <class T, int kHeadDim = 256>
__device__ void bwd_exact_query(
    const BwdArgs& args, const float* delta, const Sequence& s, int32_t batch, int32_t head, int32_t row, int lane
) {
  const Attention& a = args.attention;
  const int32_t head_k = key_head(a, head);
  RowSum<kHeadDim> dq;
  for_each_warp_step(visible_keys(a, s, row), [&](int32_t first, int count) {
    PairWeights<float> w{0.0f, 0.0f};
    if (lane < count) w = exact_weights<T>(args, delta, s, batch, head, row, first + lane);
    const T* k = row_pointer<T>(args.k, s.k, first, head_k);
    add_rows(dq, w.ds, k, args.k.row_stride, count, a.head_dim, lane);
    return !dq.all_nan(a.head_dim, lane);
  });
  dq.store(mutable_row_pointer<T>(args.dq, s.q, row, head), a.scale, a.head_dim, lane);
}

}  // namespace cuflash
