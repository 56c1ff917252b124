// SPDX-License-Identifier: MIT
// Rows of a tensor as a tile in shared memory.
#pragma once

#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/swizzle.h"
#include "kernels/sm90/tensor_map.h"

namespace cuflash::sm90 {

// Where rows of a tensor begin.
struct BoxRows {
  int row;
  int head;
  int entry;
};

// kRows rows of a tensor, panel by panel.
template <int kRows, int kHeadDim>
__device__ __forceinline__ void load_rows(
    uint32_t tile, const CUtensorMap& map, uint32_t barrier, uint64_t policy, const BoxRows& at
) {
#pragma unroll
  for (int panel = 0; panel < kHeadDim / kPanel; ++panel) {
    load_box(tile + panel * Panels<kRows>::kBytes, map, barrier, policy, panel * kPanel, at.row, at.head, at.entry);
  }
}

}  // namespace cuflash::sm90
