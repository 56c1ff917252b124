// SPDX-License-Identifier: MIT
// Attention on the CPU by `workers` threads, the calling one included; results do not depend on their number.
// Instantiated for float, __half and __nv_bfloat16.
#pragma once

#include <cstdint>

#include "kernels/kernel_args.h"
#include "status.h"

namespace cuflash::host {

template <class T>
Status forward(const FwdArgs& args, int32_t workers);

template <class T>
Status backward(const BwdArgs& args, int32_t workers);

}  // namespace cuflash::host
