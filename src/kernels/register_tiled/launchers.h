// SPDX-License-Identifier: MIT
// What family.cpp calls: one instance per capacity of the tile tables, each in its own translation unit.
#pragma once

#include <utility>

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

// Calls f.operator()<kRow>() for the plan's row of a tile table, among those with this capacity.
template <const auto& kTable, int kHeadDim, class F>
Status with_tile(const Plan& plan, F&& f) {
  Status status;
  const bool found = [&]<int... kRow>(std::integer_sequence<int, kRow...>) {
    return ([&] {
      if constexpr (kTable[kRow].head_dim == kHeadDim) {
        if (kRow == plan.tile_row) {
          status = f.template operator()<kRow>();
          return true;
        }
      }
      return false;
    }() || ...);
  }
  (std::make_integer_sequence<int, static_cast<int>(kTable.size())>());
  if (found) return status;
  return fail(CUFLASH_STATUS_INTERNAL_ERROR, "tile row %d does not have capacity head_dim %d", plan.tile_row, kHeadDim);
}

}  // namespace cuflash::register_tiled
