// SPDX-License-Identifier: MIT
// What family.cpp calls: one instance per dtype and capacity of the tile tables, each in its own translation unit.
#pragma once

#include "kernels/wmma/tiles.h"
#include "launch.h"
#include "registry.h"
#include "workspace.h"

namespace cuflash::wmma {

template <class T, int kHeadDim>
Status launch_fwd(const FwdArgs& args, const Plan& plan, const LaunchContext& context);

template <class T, int kHeadDim>
Status launch_bwd(const BwdArgs& args, const Plan& plan, const LaunchContext& context);

// Rows of the sums of dq: four elements are added at once.
constexpr int32_t dq_pitch(int32_t head_dim) { return (head_dim + 3) / 4 * 4; }

struct BwdWorkspace {
  float* delta;    // delta_i = dout_i . o_i - dlse_i, laid out as lse
  float* dq_sums;  // a row of dq_pitch() floats per element of lse: dq / scale, summed by atomics; null: not used

  static BwdWorkspace carve(const BwdArgs& args, WorkspaceCarver& carver);
};

}  // namespace cuflash::wmma
