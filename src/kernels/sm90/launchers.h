// SPDX-License-Identifier: MIT
// What family.cpp calls: one instance per dtype and capacity of the tile table, each in its own translation unit.
#pragma once

#include "kernels/common/tile_table.h"
#include "kernels/sm90/tiles.h"
#include "launch.h"
#include "registry.h"
#include "workspace.h"

namespace cuflash::sm90 {

template <class T, int kHeadDim>
Status launch_fwd(const FwdArgs& args, const Plan& plan, const LaunchContext& context);

template <class T, int kHeadDim>
Status launch_bwd(const BwdArgs& args, const Plan& plan, const LaunchContext& context);

struct BwdWorkspace {
  float* delta;           // delta_i = dout_i . o_i - dlse_i, laid out as lse
  float* dq_sums;         // dq / scale, in tiles (DqTiles)
  uint32_t* dq_counters;  // of each warpgroup's part of a tile (kDqPut)
  uint32_t* next_tile;    // of keys

  static BwdWorkspace carve(const BwdArgs& args, const BwdTile& tile, WorkspaceCarver& carver);
};

}  // namespace cuflash::sm90
