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
#include "kernels/common/bwd_finish_dq.cuh"
#include "kernels/common/select_type.h"
#include "kernels/common/tile_table.h"
#include "kernels/register_tiled/bwd_tile.cuh"
#include "kernels/register_tiled/launchers.h"
#include "launch.cuh"

namespace cuflash::register_tiled {

template <int kHeadDim>
Status launch_bwd(const BwdArgs& args, cuflashDataType_t dtype, const Plan& plan, const LaunchContext& context) {
  WorkspaceCarver carver(context.workspace);
  const BwdWorkspace workspace = BwdWorkspace::carve(args, carver);
  const Attention& a = args.attention;
  const int64_t bytes = dtype_size(dtype);
  const bool aligned = rows_are_aligned(args.q, bytes) && rows_are_aligned(args.k, bytes) &&
                       rows_are_aligned(args.v, bytes) && rows_are_aligned(args.dout, bytes);
  CUFLASH_TRY(with_dtype(dtype, [&]<class T>(TypeTag<T>) {
    return launch_bwd_delta<T>(
        context, "register_tiled bwd_delta", args, workspace.delta, workspace.dq_sums, a.head_dim
    );
  }));
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
    if (plan.query_blocks == 0) return Status();
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
    return with_dtype(dtype, [&]<class T>(TypeTag<T>) {
      return launch_bwd_finish_dq<T, false, SumsOrder::kColumns>(
          context, "register_tiled bwd_finish_dq", args, workspace.delta, workspace.dq_sums, a.head_dim
      );
    });
  });
}

}  // namespace cuflash::register_tiled
