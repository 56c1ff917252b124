// SPDX-License-Identifier: MIT
// What family.cpp calls: one instance per dtype and capacity of the tile table, each in its own translation unit.
#pragma once

#include "kernels/common/tile_table.h"
#include "kernels/sm90/tiles.h"
#include "launch.h"
#include "registry.h"

namespace cuflash::sm90 {

template <class T, int kHeadDim>
Status launch_fwd(const FwdArgs& args, const Plan& plan, const LaunchContext& context);

}  // namespace cuflash::sm90
