// SPDX-License-Identifier: MIT
// The backward pass. By default one kernel computes s and dp once and sums dq by atomics in fp32; the order of those sums
// differs from run to run. Deterministic, a second kernel sums dq in registers.
//
//   bwd_delta_kernel       delta_i = dout_i . o_i - dlse_i, and dq_sums = 0
//   bwd_kernel             dk, dv, and dq_sums if there are any
//   bwd_finish_dq_kernel   dq = scale * dq_sums                              default
//   bwd_dq_kernel          dq                                                deterministic
#pragma once

#include "kernels/common/bwd_delta.cuh"
#include "kernels/common/bwd_finish_dq.cuh"
#include "kernels/cp_async/bwd_dq.cuh"
#include "kernels/cp_async/bwd_tile.cuh"
#include "kernels/cp_async/launchers.h"

namespace cuflash::cp_async {

template <class T, int kHeadDim>
Status launch_bwd(const BwdArgs& args, const Plan& plan, const LaunchContext& context) {
  WorkspaceCarver carver(context.workspace);
  const int32_t pitch = dq_pitch(args.attention.head_dim);
  const BwdWorkspace workspace = BwdWorkspace::carve(args, pitch, carver);
  CUFLASH_TRY(launch_bwd_delta<T>(context, "cp_async bwd_delta", args, workspace.delta, workspace.dq_sums, pitch));
  return with_tile<kBwdTiles, kHeadDim>(plan, [&]<int kRow>() {
    constexpr BwdTile kTile = kBwdTiles[kRow];
    if (plan.key_blocks > 0) {
      const LaunchShape keys = {plan.key_blocks, kTile.threads(), kTile.shared_bytes()};
      const auto kernel = is_plain(args.attention) ? bwd_kernel<T, kRow, true> : bwd_kernel<T, kRow, false>;
      CUFLASH_TRY(launch(context, "cp_async bwd", kernel, keys, args, workspace.delta, workspace.dq_sums));
    }
    if (plan.query_blocks == 0) return Status();
    if (args.deterministic) {
      const LaunchShape queries = {plan.query_blocks, kTile.dq_threads(), kTile.dq_shared_bytes()};
      return launch(context, "cp_async bwd_dq", bwd_dq_kernel<T, kRow>, queries, args, workspace.delta);
    }
    return launch_bwd_finish_dq<T, true, SumsOrder::kFragments>(
        context, "cp_async bwd_finish_dq", args, workspace.delta, workspace.dq_sums, pitch
    );
  });
}

}  // namespace cuflash::cp_async
