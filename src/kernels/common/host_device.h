// SPDX-License-Identifier: MIT
#pragma once

// Policies are written once and run on both sides: device code calls them, host tests check them without a GPU.
#if defined(__CUDACC__)
#define CUFLASH_HD __host__ __device__ inline
#else
#define CUFLASH_HD inline
#endif
