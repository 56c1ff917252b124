// SPDX-License-Identifier: MIT
// What family.cpp calls: one instance per dtype and capacity of the tile tables, each in its own translation unit.
#pragma once

#include "kernels/common/bwd_workspace.h"
#include "kernels/wmma/tiles.h"
#include "launch.h"
#include "registry.h"

namespace cuflash::wmma {

template <class T, int kHeadDim>
Status launch_fwd(const FwdArgs& args, const Plan& plan, const LaunchContext& context);

template <class T, int kHeadDim>
Status launch_bwd(const BwdArgs& args, const Plan& plan, const LaunchContext& context);

}  // namespace cuflash::wmma
