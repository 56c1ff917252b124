// SPDX-License-Identifier: MIT
// What tensor copies need to know of a tensor: its map, made on the host for every call and passed to the kernel by value.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/kernel_args.h"
#include "problem.h"
#include "registry.h"

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

cudaError_t make_maps(const FwdArgs& args, cuflashDataType_t dtype, const FwdBoxes& boxes, FwdMaps* maps);

// Of the backward pass.
struct BwdMaps {
  CUtensorMap q;
  CUtensorMap k;
  CUtensorMap v;
  CUtensorMap dout;
};

struct BwdBoxes {
  int q_rows;  // and of dout
  int kv_rows;
};

cudaError_t make_maps(const BwdArgs& args, cuflashDataType_t dtype, const BwdBoxes& boxes, BwdMaps* maps);

// Why tensor copies cannot serve these tensors, if they cannot.
Refusal refuse_maps(const FwdArgs& args);
Refusal refuse_maps(const BwdArgs& args);

}  // namespace cuflash::sm90
