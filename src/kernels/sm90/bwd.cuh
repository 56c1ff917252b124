// SPDX-License-Identifier: MIT
// The backward pass. A block owns 128 keys and streams the query rows that see them, of all query heads of the group.
//
//                  queries ->  64 or 128 a step
//   128 keys    +---------+     a warpgroup owns 64 keys
//   per block,  | group 0 |     1. s = k q^T       wgmma, both operands in shared memory
//   64 per      +---------+     2. dp = v dout^T
//   warpgroup   | group 1 |     3. p, ds           in registers; ds to shared memory too
//               +---------+     4. dv += p^T dout, dk += ds^T q     weights in registers
//                               5. dq = ds k       half of it, over the keys of both; added to sums in global memory
//
//   loader      q, dout, k, v    one thread, tensor copies into rings of buffers, across tiles
//   describer   what a step is, lse and delta of its rows
//   2 stores    dq from shared memory to global memory, bulk reductions
//
// At head_dim 256 a block has 64 keys, and its warpgroups split the work in another way: bwd_split_compute.cuh.
//
// One block per SM stays; it takes tiles from a counter in global memory. Around it, bwd_prepare_kernel computes delta, and
// bwd_finish_kernel scales, rounds and stores dq.
#pragma once

#include <algorithm>

#include "kernels/sm90/bwd_compute.cuh"
#include "kernels/sm90/bwd_load.cuh"
#include "kernels/sm90/bwd_rows.cuh"
#include "kernels/sm90/bwd_split_compute.cuh"
#include "kernels/sm90/launchers.h"
#include "launch.cuh"

namespace cuflash::sm90 {

template <class T, int kRow, bool kPlain>
__global__ void __launch_bounds__(kBwdTiles[kRow].threads(), 1) bwd_kernel(
    const __grid_constant__ BwdMaps maps,
    const __grid_constant__ BwdArgs args,
    const __grid_constant__ KeySchedule schedule,
    const __grid_constant__ BwdWorkspace workspace
) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = BwdBlock<kRow>;
  static_assert(sizeof(Block) <= kTile.state_bytes());
  Block& block = *reinterpret_cast<Block*>(shared + kTile.state_offset());
  const int group = __shfl_sync(kFullWarp, threadIdx.x / kGroupThreads, 0);
  if (threadIdx.x == 0) {
    prefetch_map(maps.q);
    prefetch_map(maps.k);
    prefetch_map(maps.v);
    prefetch_map(maps.dout);
    block.init();
  }
  __syncthreads();
  if (group == 0) {
    give_registers<kTile.loader_registers>();
    const int warp = __shfl_sync(kFullWarp, threadIdx.x / kWarpSize, 0);
    if (warp == 0) {
      if (threadIdx.x == 0)
        bwd_load_tiles<kRow>(args.attention, schedule, maps, block, shared_address(shared), workspace.next_tile);
    } else if (warp == 1) {
      bwd_describe_steps<kRow>(args, schedule, workspace.delta, block, shared_address(shared));
    } else {
      bwd_add_dq<kRow>(block, workspace.dq_sums, workspace.dq_counters, schedule.dq, shared_address(shared), warp - 2);
    }
  } else {
    take_registers<kTile.consumer_registers>();
    if constexpr (kTile.splits_roles()) {
      bwd_compute_split_tiles<T, kRow, kPlain>(args, workspace.delta, block, shared_address(shared), group - 1);
    } else {
      bwd_compute_tiles<T, kRow, kPlain>(args, workspace.delta, block, shared_address(shared), group - 1);
    }
  }
}

template <class T, int kHeadDim>
Status launch_bwd(const BwdArgs& args, const Plan& plan, const LaunchContext& context) {
  return with_tile<kBwdTiles, kHeadDim>(plan, [&]<int kRow>() {
    constexpr BwdTile kTile = kBwdTiles[kRow];
    constexpr cuflashDataType_t kDType = std::is_same_v<T, __half> ? CUFLASH_R_16F : CUFLASH_R_16BF;
    constexpr BwdBoxes kBoxes = {.q_rows = kTile.block_m, .kv_rows = kTile.block_n};
    const Attention& a = args.attention;
    WorkspaceCarver carver(context.workspace);
    const BwdWorkspace workspace = BwdWorkspace::carve(args, kTile, carver);
    const KeySchedule schedule = KeySchedule::of(a, kTile.block_n, args.deterministic);
    BwdMaps maps{};
    if (context.mode == LaunchMode::kRun) CUFLASH_TRY(check_cuda(make_maps(args, kDType, kBoxes, &maps), "sm90 bwd"));
    if (plan.query_blocks > 0 || plan.key_blocks > 0) {
      const LaunchShape shape = {std::max<int64_t>(plan.query_blocks, 1), kRowThreads, 0};
      const auto kernel = bwd_prepare_kernel<T, kRow>;
      CUFLASH_TRY(launch(context, "sm90 bwd_prepare", kernel, shape, args, workspace, schedule.dq == DqSums::kCleared));
    }
    if (plan.key_blocks > 0) {
      const LaunchShape shape = {plan.key_blocks, kTile.threads(), kTile.shared_bytes()};
      const auto kernel = is_plain(a) ? bwd_kernel<T, kRow, true> : bwd_kernel<T, kRow, false>;
      CUFLASH_TRY(launch(context, "sm90 bwd", kernel, shape, maps, args, schedule, workspace));
    }
    if (plan.query_blocks == 0) return Status();
    const LaunchShape shape = {plan.query_blocks, kRowThreads, sizeof(DqRows<T, kRow>)};
    return launch(context, "sm90 bwd_finish", bwd_finish_kernel<T, kRow>, shape, args, workspace);
  });
}

}  // namespace cuflash::sm90
