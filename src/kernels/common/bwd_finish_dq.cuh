// SPDX-License-Identifier: MIT
// What a backward pass that sums dq in fp32 by atomics ends with: dq = scale * sums, rounded.
#pragma once

#include <algorithm>

#include "kernels/common/alignment.h"
#include "kernels/common/exact_rows.cuh"
#include "kernels/common/numeric_traits.cuh"
#include "kernels/common/query_rows.cuh"
#include "launch.cuh"

namespace cuflash {

// How the sums of a row lie.
enum class SumsOrder {
  kColumns,
  kFragments,  // of 16 columns each, as lanes have them of two 16x8 blocks (fragment.cuh): 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15
};

// Where the sum of a column lies.
template <SumsOrder kOrder>
__device__ __forceinline__ int sums_place(int column) {
  if constexpr (kOrder == SumsOrder::kColumns) return column;
  return column / 16 * 16 + column % 8 / 2 * 4 + column % 16 / 8 * 2 + column % 2;
}

// One lane's part of rows: of each, where it goes to, nowhere if null, and its sums. `zeros` of rows with a sum that is not
// finite become NaN.
template <class T, SumsOrder kOrder, int kSize>
__device__ void finish_rows(
    float (&zeros)[kRowsAtOnce],
    T* const (&to)[kRowsAtOnce],
    const float* const (&sums)[kRowsAtOnce],
    float scale,
    int head_dim,
    int lane,
    int lanes
) {
#pragma unroll 1
  for (int d = lane * kSize; d < head_dim; d += lanes * kSize) {
    RowVector<float, kSize> from[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      constexpr int kTogether = kOrder == SumsOrder::kColumns ? kSize : std::min(kSize, 2);
#pragma unroll
      for (int e = 0; e < kSize; e += kTogether) {
        using Part = RowVector<float, kTogether>;
        *reinterpret_cast<Part*>(from[i].at + e) = *reinterpret_cast<const Part*>(sums[i] + sums_place<kOrder>(d + e));
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      RowVector<T, kSize> row;
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        zeros[i] += from[i].at[e] - from[i].at[e];
        row.at[e] = from_float<T>(from[i].at[e] * scale);
      }
      if (to[i] != nullptr) *reinterpret_cast<RowVector<T, kSize>*>(to[i] + d) = row;
    }
  }
}

// kSecondLook: of a room whose sums may hold NaN or infinity of pairs that the mask hides; these rows are computed again.
template <class T, bool kSecondLook, SumsOrder kOrder>
__global__ void __launch_bounds__(kRowThreads) bwd_finish_dq_kernel(
    const BwdArgs args, const RowGroups groups, const float* delta, const float* dq_sums, const int32_t dq_pitch
) {
  const Attention& a = args.attention;
  const int group = threadIdx.x / groups.lanes;
  const int lane = threadIdx.x % groups.lanes;
  for_each_row_block(a, groups, [&](const TileCoord& at, const Sequence& s, const Range& rows) {
    const int32_t count = rows.end - rows.begin;
    const float* first = dq_sums + lse_offset(a, s.q, rows.begin, at.head) * dq_pitch;
    const float* sums[kRowsAtOnce];
    T* dq[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const int32_t row = group + i * groups.groups();
      sums[i] = first + int64_t{min(row, count - 1)} * dq_pitch;
      dq[i] = row < count ? mutable_row_pointer<T>(args.dq, s.q, rows.begin + row, at.head) : nullptr;
    }
    float zeros[kRowsAtOnce] = {};
    if (groups.vectors) {
      finish_rows<T, kOrder, kVectorSize<T>>(zeros, dq, sums, a.scale, a.head_dim, lane, groups.lanes);
    } else {
      finish_rows<T, kOrder, 1>(zeros, dq, sums, a.scale, a.head_dim, lane, groups.lanes);
    }
    if constexpr (kSecondLook) {
      if (!masks_pairs(a)) return;
      const unsigned group_lanes = kFullWarp >> (kWarpSize - groups.lanes);
      const int warp_lane = threadIdx.x % kWarpSize;
      const int first_group = (threadIdx.x - warp_lane) / groups.lanes;
      unsigned marks = 0;  // the lane's rows that are not finite
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) marks |= dq[i] != nullptr && zeros[i] != 0.0f ? 1u << i : 0u;
      __syncwarp();  // the rows are written twice, by different lanes
#pragma unroll 1
      for (int i = 0; i < kRowsAtOnce; ++i) {
        unsigned lanes_left = __ballot_sync(kFullWarp, (marks >> i & 1) != 0);
#pragma unroll 1
        while (lanes_left != 0) {
          const int group_of_warp = (__ffs(lanes_left) - 1) / groups.lanes;
          const int row_of_block = first_group + group_of_warp + i * groups.groups();
          bwd_exact_query<T>(args, delta, s, at.batch, at.head, rows.begin + row_of_block, warp_lane);
          lanes_left &= ~(group_lanes << group_of_warp * groups.lanes);
        }
      }
    }
  });
}

template <class T, bool kSecondLook, SumsOrder kOrder>
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
  return launch(
      context, name, bwd_finish_dq_kernel<T, kSecondLook, kOrder>, shape, args, groups, delta, dq_sums, dq_pitch
  );
}

}  // namespace cuflash
