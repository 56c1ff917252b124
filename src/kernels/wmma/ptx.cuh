// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_bf16.h>
#include <mma.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cuflash::wmma {

// nvcuda::wmma::load_matrix_sync() from shared memory. For bf16 the instruction that it stands for is written out (PTX ISA,
// wmma.load): nvcc 13.0 does not see that the address is one of shared memory, and makes four generic loads of the one
// matrix load.
template <class Use, class Layout>
__device__ __forceinline__ void load_from_shared(
    nvcuda::wmma::fragment<Use, 16, 16, 16, __half, Layout>& fragment, const __half* from, unsigned pitch
) {
  nvcuda::wmma::load_matrix_sync(fragment, from, pitch);
}

template <class Use, class Layout>
__device__ __forceinline__ void load_from_shared(
    nvcuda::wmma::fragment<Use, 16, 16, 16, __nv_bfloat16, Layout>& fragment, const __nv_bfloat16* from, unsigned pitch
) {
  constexpr bool kIsA = std::is_same_v<Use, nvcuda::wmma::matrix_a>;
  constexpr bool kByRows = std::is_same_v<Layout, nvcuda::wmma::row_major>;
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(from));
  uint32_t r[4];
  static_assert(sizeof(fragment.x) == sizeof(r));
  if constexpr (kIsA && kByRows) {
    asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address), "r"(pitch)
                 : "memory");
  } else if constexpr (kIsA) {
    asm volatile("wmma.load.a.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address), "r"(pitch)
                 : "memory");
  } else if constexpr (kByRows) {
    asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address), "r"(pitch)
                 : "memory");
  } else {
    asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address), "r"(pitch)
                 : "memory");
  }
  memcpy(&fragment.x, r, sizeof(r));
}

// Makes the compiler take x for a new number: what it has computed from the old one, it computes again.
__device__ __forceinline__ void forget(uint32_t& x) { asm volatile("" : "+r"(x)); }

// Adds four neighbours to global memory, at a multiple of 16 bytes.
__device__ __forceinline__ void add_quad(float* to, const float4& x) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
               : "memory");
#else
  atomicAdd(to, x.x);
  atomicAdd(to + 1, x.y);
  atomicAdd(to + 2, x.z);
  atomicAdd(to + 3, x.w);
#endif
}

}  // namespace cuflash::wmma
