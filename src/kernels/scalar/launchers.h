// SPDX-License-Identifier: MIT
// What family.cpp calls: one explicit instance per dtype and row of the tile table, each in its own translation unit.
#pragma once

#include "launch.h"
#include "registry.h"
#include "workspace.h"

namespace cuflash::scalar {

template <class T, int kHeadDim>
Status launch_fwd(const FwdArgs& args, const Plan& plan, const LaunchContext& context);

template <class T, int kHeadDim>
Status launch_bwd(const BwdArgs& args, const Plan& plan, const LaunchContext& context);

// delta_i = dout_i . o_i - dlse_i, laid out as lse.
struct BwdWorkspace {
  float* delta;

  static BwdWorkspace carve(const Attention& attention, WorkspaceCarver& carver);
};

}  // namespace cuflash::scalar
