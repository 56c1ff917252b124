// SPDX-License-Identifier: MIT
// What a backward pass that sums dq in fp32 by atomics ends with: dq = scale * sums, rounded.
#pragma once

#include "kernels/common/alignment.h"
#include "kernels/common/exact_rows.cuh"
#include "kernels/common/numeric_traits.cuh"
#include "kernels/common/query_rows.cuh"
#include "launch.cuh"

namespace cuflash {

// One lane's part of a row; returns whether the sums in it are finite.
template <class T, int kSize>
__device__ bool finish_row(T* to, const float* sums, float scale, int head_dim, int lane, int lanes) {
  float zero = 0.0f;  // NaN if a sum is not finite
#pragma unroll 1
  for (int d = lane * kSize; d < head_dim; d += lanes * kSize) {
    const auto from = *reinterpret_cast<const RowVector<float, kSize>*>(sums + d);
    RowVector<T, kSize> row;
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      zero += from.at[e] - from.at[e];
      row.at[e] = from_float<T>(from.at[e] * scale);
    }
    *reinterpret_cast<RowVector<T, kSize>*>(to + d) = row;
  }
  return zero == 0.0f;
}

// kSecondLook: of a room whose sums may hold NaN or infinity of pairs that the mask hides; these rows are computed again.
template <class T, bool kSecondLook>
__global__ void __launch_bounds__(kRowThreads) bwd_finish_dq_kernel(
    const BwdArgs args, const RowGroups groups, const float* delta, const float* dq_sums, const int32_t dq_pitch
) {
  const Attention& a = args.attention;
  const int group = threadIdx.x / groups.lanes;
  const int lane = threadIdx.x % groups.lanes;
  for_each_row_block(a, groups, [&](const TileCoord& at, const Sequence& s, const Range& rows) {
    bool finite = true;
    if (group < rows.end - rows.begin) {
      const float* sums = dq_sums + (lse_offset(a, s.q, rows.begin, at.head) + group) * dq_pitch;
      T* dq = mutable_row_pointer<T>(args.dq, s.q, rows.begin + group, at.head);
      finite = groups.vectors ? finish_row<T, kVectorSize<T>>(dq, sums, a.scale, a.head_dim, lane, groups.lanes)
                              : finish_row<T, 1>(dq, sums, a.scale, a.head_dim, lane, groups.lanes);
    }
    if constexpr (kSecondLook) {
      if (!masks_pairs(a)) return;
      const unsigned group_lanes = kFullWarp >> (kWarpSize - groups.lanes);
      const int warp_lane = threadIdx.x % kWarpSize;
      unsigned lanes_left = __ballot_sync(kFullWarp, !finite);
      __syncwarp();  // the rows are written twice, by different lanes
#pragma unroll 1
      while (lanes_left != 0) {
        const int row_of_warp = (__ffs(lanes_left) - 1) / groups.lanes;
        const int row_of_block = (threadIdx.x - warp_lane) / groups.lanes + row_of_warp;
        bwd_exact_query<T>(args, delta, s, at.batch, at.head, rows.begin + row_of_block, warp_lane);
        lanes_left &= ~(group_lanes << row_of_warp * groups.lanes);
      }
    }
  });
}

template <class T, bool kSecondLook>
Status launch_bwd_finish_dq(
    const LaunchContext& context,
    const char* name,
    const BwdArgs& args,
    const float* delta,
    const float* dq_sums,
    int32_t dq_pitch
) {
  const bool aligned = rows_are_aligned(args.dq, sizeof(T)) && dq_pitch % kVectorSize<float> == 0;
  const RowGroups groups = row_groups<T>(aligned, args.attention.head_dim);
  const LaunchShape shape = {num_row_blocks(args.attention, groups), kRowThreads, 0};
  if (shape.grid == 0) return Status();
  return launch(context, name, bwd_finish_dq_kernel<T, kSecondLook>, shape, args, groups, delta, dq_sums, dq_pitch);
}

}  // namespace cuflash
