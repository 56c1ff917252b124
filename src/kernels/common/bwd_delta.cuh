// SPDX-License-Identifier: MIT
// What every backward pass begins with: delta_i = dout_i . o_i - dlse_i, one warp per query row.
#pragma once

#include "kernels/common/element.cuh"
#include "kernels/common/sequence.h"
#include "kernels/common/tile_coord.h"
#include "kernels/common/warp_reduce.cuh"

namespace cuflash {

// Calls f(rows of the entry, row, head, lane) for every query row in use, each by one warp of a block of kWarps.
template <int kWarps, class F>
__device__ void for_each_query_row(const Attention& a, F&& f) {
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int32_t blocks_per_head = ceil_div(a.seqlen_q, kWarps);
  const int64_t tiles = num_tiles(a.batch, a.num_heads, blocks_per_head);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TileCoord at = tile_coord(tile, a.num_heads, blocks_per_head);
    const Rows q = sequence_of(a, at.batch).q;
    const Range rows = block_rows(at.block, kWarps, q.length);
    if (warp < rows.end - rows.begin) f(q, rows.begin + warp, at.head, lane);
  }
}

// dq_sums (may be null) has a row of head_dim floats for each element of delta: it is cleared for the main kernel.
template <int kWarps>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    bwd_delta_kernel(const BwdArgs args, const cuflashDataType_t dtype, float* delta, float* dq_sums) {
  const Attention& a = args.attention;
  for_each_query_row<kWarps>(a, [&](const Rows& q, int32_t row, int32_t head, int lane) {
    float sum = 0.0f;
    with_element(dtype, [&]<class T>() {
      const T* o = row_pointer<T>(args.o, q, row, head);
      const T* dout = row_pointer<T>(args.dout, q, row, head);
      for (int d = lane; d < a.head_dim_v; d += kWarpSize) sum = fmaf(to_float(dout[d]), to_float(o[d]), sum);
    });
    sum = warp_sum(sum);
    const int64_t offset = lse_offset(a, q, row, head);
    if (lane == 0) delta[offset] = args.dlse == nullptr ? sum : sum - args.dlse[offset];
    if (dq_sums == nullptr) return;
    for (int d = lane; d < a.head_dim; d += kWarpSize) dq_sums[offset * a.head_dim + d] = 0.0f;
  });
}

}  // namespace cuflash
