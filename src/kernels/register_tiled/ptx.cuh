// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

namespace cuflash::register_tiled {

// Copies 16 bytes to shared memory: the first `used` bytes (a multiple of 4) are read, the others become 0. Asynchronous
// from sm_80 on; __pipeline_commit() and __pipeline_wait_prior() count it. The primitive __pipeline_memcpy_async() does
// the same, but branches on the number of bytes.
__device__ __forceinline__ void copy_16_bytes(float* to, const void* from, int used) {
#if __CUDA_ARCH__ >= 800
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(address), "l"(from), "r"(used) : "memory");
#else
  for (int e = 0; e < 4; ++e) to[e] = 4 * e < used ? static_cast<const float*>(from)[e] : 0.0f;
#endif
}

// The same for 4 bytes.
__device__ __forceinline__ void copy_4_bytes(float* to, const void* from, int used) {
#if __CUDA_ARCH__ >= 800
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(address), "l"(from), "r"(used) : "memory");
#else
  *to = used == 4 ? *static_cast<const float*>(from) : 0.0f;
#endif
}

// Adds the first `used` of four neighbouring floats to global memory, all if there are more; `aligned`: there are at least
// four, at a multiple of 16 bytes.
__device__ __forceinline__ void add_quad(float* to, const float (&quad)[4], int used, bool aligned) {
#if __CUDA_ARCH__ >= 900
  if (aligned) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "f"(quad[0]), "f"(quad[1]), "f"(quad[2]), "f"(quad[3])
                 : "memory");
    return;
  }
#endif
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (aligned || e < used) atomicAdd(to + e, quad[e]);
  }
}

}  // namespace cuflash::register_tiled
