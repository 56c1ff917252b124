// SPDX-License-Identifier: MIT
// Which cases a command line asks for.
#pragma once

#include <vector>

#include "cases.h"
#include "options.h"

namespace cuflash::bench {

// Cases for kernels that run on a GPU: the shapes given, the quick set, or FlashAttention's grid (16k tokens in all,
// hidden size 2048), each narrowed by the options.
std::vector<Case> gpu_cases(const Options& options);

// Cases for the host kernel, which would need hours for the grid: the shapes given, or one that a CPU finishes in a
// second.
std::vector<Case> host_cases(const Options& options);

}  // namespace cuflash::bench
