// SPDX-License-Identifier: MIT
// The backward pass. By default one kernel computes s and dp once and sums dq by atomics in fp32; the order of those sums
// differs from run to run. Deterministic, a second run of the same kernel with the sides exchanged sums dq in registers,
// which computes s and dp twice: 7 products instead of 5, and no workspace but delta.
//
//   bwd_delta_kernel              delta_i = dout_i . o_i - dlse_i, and dq_sums = 0
//   bwd_kernel<kKeys>             dk, dv, and dq_sums if there are any
//   bwd_finish_dq_kernel          dq = scale * dq_sums                         default
//   bwd_kernel<kQueries>          dq                                           deterministic
#pragma once

#include "kernels/common/alignment.h"
#include "kernels/common/bwd_delta.cuh"
#include "kernels/register_tiled/bwd_tile.cuh"
#include "kernels/register_tiled/launchers.h"
#include "launch.cuh"

namespace cuflash::register_tiled {

inline constexpr int kRowWarps = 8;  // of the kernels that go over query rows, a warp per row

// dq = scale * dq_sums, rounded to the type of dq.
template <int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp)
    bwd_finish_dq_kernel(const BwdArgs args, const cuflashDataType_t dtype, const float* dq_sums) {
  for_each_query_row<kWarps>(args.attention, [&](const Rows& q, int32_t row, int32_t head, int lane) {
    const float* from = dq_sums + lse_offset(args.attention, q, row, head) * args.attention.head_dim;
    with_element(dtype, [&]<class T>() {
      T* to = mutable_row_pointer<T>(args.dq, q, row, head);
      for (int d = lane; d < args.attention.head_dim; d += kWarp) to[d] = from_float<T>(from[d] * args.attention.scale);
    });
  });
}

template <int kHeadDim>
Status launch_bwd(const BwdArgs& args, cuflashDataType_t dtype, const Plan& plan, const LaunchContext& context) {
  WorkspaceCarver carver(context.workspace);
  const BwdWorkspace workspace = BwdWorkspace::carve(args, carver);
  const Attention& a = args.attention;
  const int64_t bytes = dtype_size(dtype);
  const bool aligned = rows_are_aligned(args.q, bytes) && rows_are_aligned(args.k, bytes) &&
                       rows_are_aligned(args.v, bytes) && rows_are_aligned(args.dout, bytes);
  const int64_t row_blocks = num_tiles(a.batch, a.num_heads, ceil_div(a.seqlen_q, kRowWarps));
  const LaunchShape rows = {row_blocks, kRowWarps * kWarp, 0};
  if (row_blocks > 0) {
    CUFLASH_TRY(launch(
        context,
        "register_tiled bwd_delta",
        bwd_delta_kernel<kRowWarps>,
        rows,
        args,
        dtype,
        workspace.delta,
        workspace.dq_sums
    ));
  }
  return with_tile<kBwdTiles, kHeadDim>(plan, [&]<int kRow>() {
    constexpr BwdTile kTile = kBwdTiles[kRow];
    const LaunchShape keys = {plan.key_blocks, kTile.threads, kTile.shared_bytes()};
    const LaunchShape queries = {plan.query_blocks, kTile.threads, kTile.shared_bytes()};
    if (plan.key_blocks > 0) {
      CUFLASH_TRY(launch(
          context,
          "register_tiled bwd",
          bwd_kernel<kRow, Side::kKeys>,
          keys,
          args,
          dtype,
          aligned,
          workspace.delta,
          workspace.dq_sums
      ));
    }
    if (row_blocks == 0) return Status();
    if (args.deterministic) {
      return launch(
          context,
          "register_tiled bwd_dq",
          bwd_kernel<kRow, Side::kQueries>,
          queries,
          args,
          dtype,
          aligned,
          workspace.delta,
          workspace.dq_sums
      );
    }
    return launch(
        context, "register_tiled bwd_finish_dq", bwd_finish_dq_kernel<kRowWarps>, rows, args, dtype, workspace.dq_sums
    );
  });
}

}  // namespace cuflash::register_tiled
