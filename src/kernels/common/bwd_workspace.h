// SPDX-License-Identifier: MIT
// The workspace of 16-bit rooms that sum dq in fp32 by atomics, four at a time.
#pragma once

#include "kernels/common/sequence.h"
#include "workspace.h"

namespace cuflash {

struct BwdWorkspace {
  float* delta;    // delta_i = dout_i . o_i - dlse_i, laid out as lse
  float* dq_sums;  // a row of dq_pitch floats per element of lse: dq / scale; null: not used

  static BwdWorkspace carve(const BwdArgs& args, int32_t dq_pitch, WorkspaceCarver& carver) {
    const int64_t rows = lse_size(args.attention);
    BwdWorkspace workspace = {carver.take<float>(rows), nullptr};
    if (!args.deterministic) workspace.dq_sums = carver.take<float>(rows * dq_pitch);
    return workspace;
  }
};

}  // namespace cuflash
