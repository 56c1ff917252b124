// SPDX-License-Identifier: MIT
// The instructions that the room is made of (PTX ISA: cp.async, ldmatrix, mma, red). Addresses of shared memory are 32-bit
// integers from shared_address() on.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/common/ptx.cuh"

namespace cuflash::cp_async {

// Copies 16 bytes to shared memory, past the L1 cache, on its own until wait_copies(): the first `used` bytes, a multiple
// of 4, are read, the others become 0.
__device__ __forceinline__ void copy_16_bytes(uint32_t to, const void* from, int used) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(used) : "memory");
}

// Closes a group of this thread's copies.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }

// Waits until all but the last kPending groups of this thread have arrived.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

// Four 8x8 matrices of 16-bit elements. Lane l gives the address of row l % 8 of matrix l / 8, and receives of matrix i,
// in r[i], elements 2 (l % 4) and the next one of row l / 4.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// The same, each matrix transposed.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// c += a b, 16x16 by 16x8, sums in fp32. Lane l holds, with r = l / 4 and c = 2 (l % 4): of a (r, c), (r + 8, c),
// (r, c + 8), (r + 8, c + 8), each with its right neighbour; of b (c, r), (c + 8, r), each with the element below; of c
// (r, c), (r, c + 1), (r + 8, c), (r + 8, c + 1).
template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <>
__device__ __forceinline__ void multiply_add<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)
  );
}

template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(
    float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1
) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)
  );
}

// A barrier of some whole warps of the block: kThreads threads that name the same one of barriers 1 to 15.
template <int kThreads>
__device__ __forceinline__ void sync_warps(int barrier) {
  asm volatile("bar.sync %0, %1;" : : "r"(barrier), "n"(kThreads) : "memory");
}

// Says there that this thread has come, and does not wait for the others.
template <int kThreads>
__device__ __forceinline__ void arrive_warps(int barrier) {
  asm volatile("bar.arrive %0, %1;" : : "r"(barrier), "n"(kThreads) : "memory");
}

// Adds four neighbours to global memory, at a multiple of 16 bytes.
__device__ __forceinline__ void add_quad(float* to, float x, float y, float z, float w) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" : : "l"(to), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
#else
  atomicAdd(to, x);
  atomicAdd(to + 1, y);
  atomicAdd(to + 2, z);
  atomicAdd(to + 3, w);
#endif
}

}  // namespace cuflash::cp_async
