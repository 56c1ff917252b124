// SPDX-License-Identifier: MIT
// The end of a tile of the forward pass: what a warp has summed becomes rows of o and their lse.
#pragma once

#include "kernels/common/fragment_softmax.cuh"
#include "kernels/common/mask.h"
#include "kernels/common/sequence.h"
#include "kernels/common/tile_coord.h"
#include "kernels/common/warp.h"

namespace cuflash {

template <int kMTiles>
__device__ __forceinline__ void inverse_sums(const RowStates<kMTiles>& state, float (&inverse)[2 * kMTiles]) {
#pragma unroll
  for (int i = 0; i < 2 * kMTiles; ++i) inverse[i] = state.inverse_sum(i);
}

template <int kMTiles, int kNTiles>
__device__ __forceinline__ void normalise(float (&o)[kMTiles][kNTiles][4], const float (&inverse)[2 * kMTiles]) {
  for_each_sum(o, [&](float& x, int i, int) { x *= inverse[i]; });
}

// Of the rows `own` those, as bits, that are to be computed again: not finite, though no key that they see has a NaN score,
// which the sum of weights would show.
template <int kMTiles, int kNTiles>
__device__ __forceinline__ unsigned rows_to_redo(
    const float (&o)[kMTiles][kNTiles][4], const RowStates<kMTiles>& state, const Range& own
) {
  return rows_where<RowStates<kMTiles>::kRows>(own.end - own.begin, [&](int i) {
    return !row_is_finite(o, i) && state.sum[i] == state.sum[i];
  });
}

// Lane q of a quad stores row q of those that the quad has.
template <int kMTiles>
__device__ __forceinline__ void store_lse(
    const FwdArgs& args,
    const Sequence& s,
    const TileCoord& at,
    const Range& own,
    const RowStates<kMTiles>& state,
    float factor
) {
  const int lane = threadIdx.x % kWarpSize;
  const int32_t row = own.begin + lane / 4 + lane % 4 * 8;
  if (args.lse == nullptr || lane % 4 >= RowStates<kMTiles>::kRows || row >= own.end) return;
  args.lse[lse_offset(args.attention, s.q, row, at.head)] = state.lse(lane % 4, factor);
}

}  // namespace cuflash
