// SPDX-License-Identifier: MIT
// What the cp_async room does, by warpgroups with one role each: one loads, two or three compute.
//
//                  keys ->  block_n per step, from the last to the first
//   block_m       +---------+     a warpgroup owns 64 query rows
//   query rows,   | group 0 |     1. s = q k^T     wgmma, both operands in shared memory
//   64 per        +---------+     2. softmax       in registers, a quad of lanes shares a row
//   warpgroup     | group 1 |     3. o += p v      wgmma, p in registers
//                 +---------+
//
//   loader        q k | k v | k v | ... | v q k | ...     one thread, tensor copies into rings of buffers, across tiles
//   group 0       s | softmax, o | s ...
//   group 1           s | softmax, o | ...                in turns: products of one under the softmax of the other
//
// One block per SM stays for all of its tiles (schedule.h). Loader and consumers meet at barriers in shared memory
// (fwd_state.cuh), consumers among themselves at named barriers. Rows of o that come out as NaN or infinite under a mask
// are computed again by the definition (common/exact_rows.cuh). What limits it: see docs/kernels/sm90.md.
#pragma once

#include "kernels/sm90/fwd_compute.cuh"
#include "kernels/sm90/fwd_load.cuh"
#include "kernels/sm90/launchers.h"
#include "launch.cuh"

namespace cuflash::sm90 {

// kPlain: neither softcap nor ALiBi, whose code would lie between that of a step. A call finds its code in memory if others ran
// before it, and every jump waits for that. kByEntry: as the schedule is; the thread that loads has few registers.
template <class T, int kRow, bool kPlain, bool kByEntry>
__global__ void __launch_bounds__(kFwdTiles[kRow].threads(), 1) fwd_kernel(
    const __grid_constant__ FwdMaps maps,
    const __grid_constant__ FwdArgs args,
    const __grid_constant__ Schedule schedule
) {
  constexpr FwdTile kTile = kFwdTiles[kRow];
  extern __shared__ __align__(1024) unsigned char shared[];
  using State = FwdState<kRow>;
  static_assert(sizeof(State) <= kBlockStateBytes);
  State& block = *reinterpret_cast<State*>(shared + kTile.state_offset());
  const int group = __shfl_sync(kFullWarp, threadIdx.x / kGroupThreads, 0);
  if (threadIdx.x == 0) {
    prefetch_map(maps.q);
    prefetch_map(maps.k);
    prefetch_map(maps.v);
    prefetch_map(maps.o);
    block.init();
  }
  __syncthreads();
  if constexpr (kByEntry) sort_entries(args.attention, kTile.block_m, block.entries);
  if (group == 0) {
    give_registers<kTile.loader_registers>();
    if (threadIdx.x < kWarpSize && is_elected())
      load_tiles<kRow, kByEntry>(args.attention, schedule, maps, block, shared_address(shared));
  } else {
    take_registers<kTile.consumer_registers>();
    compute_tiles<T, kRow, kPlain>(args, maps, block, shared_address(shared), group - 1);
  }
}

template <class T, int kHeadDim>
Status launch_fwd(const FwdArgs& args, const Plan& plan, const LaunchContext& context) {
  return with_tile<kFwdTiles, kHeadDim>(plan, [&]<int kRow>() {
    constexpr FwdTile kTile = kFwdTiles[kRow];
    constexpr cuflashDataType_t kDType = std::is_same_v<T, __half> ? CUFLASH_R_16F : CUFLASH_R_16BF;
    constexpr FwdBoxes kBoxes = {.q_rows = kTile.block_m, .kv_rows = kTile.block_n, .o_rows = kGroupRows};
    constexpr const char* kName = "sm90 fwd";
    FwdMaps maps{};
    if (context.mode == LaunchMode::kRun) CUFLASH_TRY(check_cuda(make_maps(args, kDType, kBoxes, &maps), kName));
    const LaunchShape shape = {plan.query_blocks, kTile.threads(), kTile.shared_bytes()};
    const Schedule schedule = Schedule::of(args.attention, kTile.block_m, static_cast<int32_t>(plan.query_blocks));
    const auto launch_kernel = [&]<bool kPlain>() {
      const auto kernel = schedule.by_entry ? fwd_kernel<T, kRow, kPlain, true> : fwd_kernel<T, kRow, kPlain, false>;
      return launch(context, kName, kernel, shape, maps, args, schedule);
    };
    return is_plain(args.attention) ? launch_kernel.template operator()<true>()
                                    : launch_kernel.template operator()<false>();
  });
}

}  // namespace cuflash::sm90
