// SPDX-License-Identifier: MIT
// What family.cpp calls: one instance per capacity of the tile tables, each in its own translation unit.
#pragma once

#include "kernels/register_tiled/tiles.h"
#include "launch.h"
#include "registry.h"
#include "workspace.h"

namespace cuflash::register_tiled {

template <int kHeadDim>
Status launch_fwd(const FwdArgs& args, cuflashDataType_t dtype, const Plan& plan, const LaunchContext& context);

template <int kHeadDim>
Status launch_bwd(const BwdArgs& args, cuflashDataType_t dtype, const Plan& plan, const LaunchContext& context);

struct BwdWorkspace {
  float* delta;    // delta_i = dout_i . o_i - dlse_i, laid out as lse
  float* dq_sums;  // a row of head_dim floats per element of lse: dq / scale, summed by atomics; null: not used

  static BwdWorkspace carve(const BwdArgs& args, WorkspaceCarver& carver);
};

}  // namespace cuflash::register_tiled
