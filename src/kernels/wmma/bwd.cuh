// SPDX-License-Identifier: MIT
// The backward pass. By default one kernel computes s and dp once and sums dq by atomics in fp32; the order of those sums
// differs from run to run. Deterministic, a second run of the same kernel with the sides exchanged sums dq in fragments,
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
#include "kernels/common/tile_table.h"
#include "kernels/wmma/bwd_tile.cuh"
#include "kernels/wmma/launchers.h"
#include "launch.cuh"

namespace cuflash::wmma {

template <class T, int kHeadDim>
Status launch_bwd(const BwdArgs& args, const Plan& plan, const LaunchContext& context) {
  WorkspaceCarver carver(context.workspace);
  const BwdWorkspace workspace = BwdWorkspace::carve(args, dq_pitch(args.attention.head_dim), carver);
  const Attention& a = args.attention;
  const bool aligned = rows_are_aligned(args.q, sizeof(T)) && rows_are_aligned(args.k, sizeof(T)) &&
                       rows_are_aligned(args.v, sizeof(T)) && rows_are_aligned(args.dout, sizeof(T)) &&
                       rows_are_aligned(args.dq, sizeof(T)) && rows_are_aligned(args.dk, sizeof(T)) &&
                       rows_are_aligned(args.dv, sizeof(T)) && a.head_dim % kChunk == 0 && a.head_dim_v % kChunk == 0;
  CUFLASH_TRY(
      launch_bwd_delta<T>(context, "wmma bwd_delta", args, workspace.delta, workspace.dq_sums, dq_pitch(a.head_dim))
  );
  return with_tile<kBwdTiles, kHeadDim>(plan, [&]<int kRow>() {
    constexpr BwdTile kTile = kBwdTiles[kRow];
    const LaunchShape keys = {plan.key_blocks, kTile.threads(), kTile.shared_bytes()};
    const LaunchShape queries = {plan.query_blocks, kTile.threads(), kTile.shared_bytes()};
    if (plan.key_blocks > 0) {
      CUFLASH_TRY(launch(
          context, "wmma bwd", bwd_kernel<T, kRow, Side::kKeys>, keys, args, aligned, workspace.delta, workspace.dq_sums
      ));
    }
    if (plan.query_blocks == 0) return Status();
    if (args.deterministic) {
      return launch(
          context,
          "wmma bwd_dq",
          bwd_kernel<T, kRow, Side::kQueries>,
          queries,
          args,
          aligned,
          workspace.delta,
          workspace.dq_sums
      );
    }
    return launch_bwd_finish_dq<T, true, SumsOrder::kColumns>(
        context, "wmma bwd_finish_dq", args, workspace.delta, workspace.dq_sums, dq_pitch(a.head_dim)
    );
  });
}

}  // namespace cuflash::wmma
