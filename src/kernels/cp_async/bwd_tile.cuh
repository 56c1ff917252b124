// SPDX-License-Identifier: MIT
// The main kernel of the backward pass. A block owns keys and streams the query rows that see them, of all query heads of
// the group. Products are formed transposed, so that what a warp computes of p^T and ds^T is, rounded, operand a of its
// next products:
//
//                  queries ->  64 a step
//   128 keys    +--------+     1. s  = k q^T                            4. p^T, ds^T rounded
//   per block,  | warp 0 |     2. dp = v dout^T                         5. dv += p^T dout
//   4 or 8      +--------+     3. p, ds                                 6. dk += ds^T q
//   warps       |  ...   |     7. ds^T to shared memory: dq += ds k of the step before, by all warps, red.global.add
//               +--------+
//
//   copies    | q, dout (i + 1)                       | q, dout (i + 2)
//   warp      | s dp p ds dv dk (i), dq (i - 1) ...   | s dp p ds dv dk (i + 1), dq (i) ...
//             ^ wait, barrier                         ^ wait, barrier
//
// One barrier per step: it says that the step's copies have arrived, that the ds of the step before is complete, and that
// the memory of the one before that is free. Between barriers (and those of bwd_roles.cuh) warps run freely, so that the
// arithmetic of one runs under the products of others.
//
// In tiles for small head_dim, or little shared memory, a warp has keys of its own and does all of 1 to 6 (bwd_alone.cuh). In the
// others its registers have room for one of the two gradients, and one half of the warps does 1, p and 5, the other 2, ds and
// 6 (bwd_roles.cuh).
//
// dk and dv rows that come out as NaN or infinite under a mask are computed again by the definition (exact_rows.cuh).
#pragma once

#include <type_traits>

#include "kernels/common/bwd_workspace.h"
#include "kernels/common/exact_rows.cuh"
#include "kernels/cp_async/bwd_add_dq.cuh"
#include "kernels/cp_async/bwd_alone.cuh"
#include "kernels/cp_async/bwd_roles.cuh"

namespace cuflash::cp_async {

// kPlain: as is_plain() says; the kernel for other scores is larger, and apart so that this one has its registers.
template <class T, int kRow, bool kPlain>
__global__ void __launch_bounds__(kBwdTiles[kRow].threads(), kBwdTiles[kRow].min_blocks)
    bwd_kernel(const BwdArgs args, const float* delta, float* dq_sums) {
  constexpr BwdTile kTile = kBwdTiles[kRow];
  constexpr int kThreads = kTile.threads();
  constexpr int kHeadDim = kTile.head_dim;
  constexpr int kBlockM = kTile.block_m;
  constexpr int kBlockN = kTile.block_n;
  constexpr int kStages = kTile.stages;
  using Memory = BwdMemory<kRow>;
  using Warp = std::conditional_t<kTile.by_role, BwdRoleWarp<T, kRow, kPlain>, BwdAloneWarp<T, kRow, kPlain>>;

  extern __shared__ __align__(128) unsigned char shared[];
  static_assert(sizeof(BwdState<T, kRow>) <= kTile.state_bytes());
  const Memory memory = {shared_address(shared)};
  BwdState<T, kRow>& state = *reinterpret_cast<BwdState<T, kRow>*>(shared + kTile.state_offset());
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  // Where two warps of a block share a scheduler, one computes dq before its weights and the other behind: otherwise all
  // would add to global memory at the same time. With roles it is the one with ds, which then need not wait for p.
  const bool dq_first = kTile.warps < 8 || (warp < kTile.warps / 2) != kTile.by_role;

  const Attention& a = args.attention;
  const float factor = kPlain ? a.scale * kLog2e : 1.0f;
  if (threadIdx.x == 0) {
    state.next_tile = blockIdx.x;
    state.pace.set_pace(args, kBlockM);
  }
#pragma unroll 1
  while (begin_tile<T, kRow>(args, state, memory)) {
    const BwdBlock& block = state.block;
    if (block.own.empty()) continue;

    const auto copy_step = [&](int i, const StepRows<T>& rows) {
      if (rows.left > 0) {
        const auto copy = copy_tile<kThreads, kBlockM, kHeadDim, T>;
        copy(memory.q(i), rows.q, args.q.row_stride, rows.left, a.head_dim);
        copy(memory.dout(i), rows.dout, args.dout.row_stride, rows.left, a.head_dim_v);
      }
      commit_copies();
    };
    const auto set_step_after = [&](int i) {
      if (warp != kTile.warps - 1) return;
      state.steps[(i + 1) % 4].set_after(state.steps[i % 4], state.pace, args, block, kBlockN, kBlockM);
    };
    const auto add_dq_of = [&](int i) {
      if (dq_sums != nullptr) add_dq(state.steps[i % 4].rows(), memory, memory.ds(i), a.head_dim, dq_sums);
    };

    Warp sums(memory);
    const StepRows<T> first = state.steps[0].rows();
    if (first.left > 0) {
      const float statistic = load_statistic<kBlockM>(args, delta, first);
      copy_step(0, first);
      set_step_after(0);
      if (store_statistic<Warp::kRaised>(state.statistics[0], statistic)) state.steps[0].edge = true;
      if constexpr (kTile.kv_in_registers) {
        wait_copies<1>();
        __syncthreads();
        sums.keep_keys();
      }
    }

    int i = 0;
#pragma unroll 1
    for (int left = first.left; left > 0; ++i) {
      wait_copies<0>();
      __syncthreads();
      const StepRows<T> next = state.steps[(i + 1) % 4].rows();
      const bool edge = state.steps[i % 4].edge;
      if constexpr (kStages == 2) copy_step(i + 1, next);
      const float statistic = load_statistic<kBlockM>(args, delta, next);
      set_step_after(i + 1);
      if (kStages == 2 && dq_first && i > 0) add_dq_of(i - 1);
      sums.add(args, state, memory, i, edge, factor);
      if (store_statistic<Warp::kRaised>(state.statistics[(i + 1) % 2], statistic))
        state.steps[(i + 1) % 4].edge = true;
      if constexpr (kStages == 2) {
        if (!dq_first && i > 0) add_dq_of(i - 1);
      } else {
        __syncthreads();
        copy_step(i + 1, next);
        add_dq_of(i);
      }
      left = next.left;
    }
    if constexpr (kStages == 2) {
      __syncthreads();
      if (i > 0) add_dq_of(i - 1);
    }

    sums.store(args, block);
    if (!masks_pairs(a)) continue;
    bool finite = true;
#pragma unroll
    for (int row = 0; row < 2 * Warp::kMTiles; ++row) finite &= sums.is_finite(row);
    // A barrier behind which every part of a row is stored; rarely there is more to do.
    if (!__syncthreads_or(!finite)) continue;
    for (int key = threadIdx.x; key < kBlockN; key += kThreads) state.marks[key] = 0;
    __syncthreads();
#pragma unroll
    for (int row = 0; row < 2 * Warp::kMTiles; ++row) {
      if (!sums.is_finite(row)) state.marks[sums.sum_key() + lane / 4 + 8 * row] = 1;
    }
    __syncthreads();
#pragma unroll 1
    for (int key = warp; key < block.own_count(); key += kTile.warps) {
      if (state.marks[key] == 0) continue;
      bwd_exact_key<T, kHeadDim>(args, delta, block.s, block.at.batch, block.at.head, block.own.begin + key, lane);
    }
  }
}

}  // namespace cuflash::cp_async
