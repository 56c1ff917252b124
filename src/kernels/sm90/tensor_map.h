// SPDX-License-Identifier: MIT
// What tensor copies need to know of a tensor: its map, made on the host for every call and passed to the kernel by value.
#pragma once

#include <cuda.h>

#include "kernels/kernel_args.h"
#include "problem.h"
#include "registry.h"
#include "status.h"

namespace cuflash::sm90 {

// Of the forward pass. Coordinates are (column, row, head, entry); a packed tensor is one entry.
struct FwdMaps {
  CUtensorMap q;
  CUtensorMap k;
  CUtensorMap v;
  CUtensorMap o;
};

// Rows of the boxes that one copy takes.
struct FwdBoxes {
  int q_rows;
  int kv_rows;
  int o_rows;
};

Status make_maps(const FwdArgs& args, cuflashDataType_t dtype, const FwdBoxes& boxes, FwdMaps* maps);

// Why tensor copies can not serve a tensor of this many entries, rows and heads, if they can't.
Refusal refuse_maps(const FwdArgs& args);

}  // namespace cuflash::sm90
