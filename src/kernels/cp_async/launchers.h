// SPDX-License-Identifier: MIT
// What family.cpp calls: one instance per dtype and capacity of the tile tables, each in its own translation unit.
#pragma once

#include "kernels/common/tile_table.h"
#include "kernels/cp_async/tiles.h"
#include "launch.h"
#include "registry.h"
#include "workspace.h"

namespace cuflash::cp_async {

template <class T, int kHeadDim>
Status launch_fwd(const FwdArgs& args, const Plan& plan, const LaunchContext& context);

template <class T, int kHeadDim>
Status launch_bwd(const BwdArgs& args, const Plan& plan, const LaunchContext& context);

struct BwdWorkspace {
  float* delta;    // delta_i = dout_i . o_i - dlse_i, laid out as lse
  float* dq_sums;  // a row of the capacity's head_dim floats per element of lse: dq / scale; null: not used

  static BwdWorkspace carve(const BwdArgs& args, int32_t capacity, WorkspaceCarver& carver);
};

}  // namespace cuflash::cp_async
