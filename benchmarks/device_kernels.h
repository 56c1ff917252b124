// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "cuflash/cuflash.h"

namespace cuflash::bench {

// data[i] = random_normal(seed, i)
void fill_normal(void* data, cuflashDataType_t dtype, int64_t elements, uint64_t seed, cudaStream_t stream);

// A kernel without parameters that does nothing, for cudaLaunchKernelExC().
const void* empty_kernel();

}  // namespace cuflash::bench
