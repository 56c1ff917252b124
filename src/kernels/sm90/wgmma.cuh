// SPDX-License-Identifier: MIT
// Products of a warpgroup on tensor cores (PTX ISA, wgmma): 64 rows by 8 * kBlocks columns, 16 deep, sums in fp32. They run on their
// own until wait_products(): till then sums, and operands in registers, belong to the tensor cores.
//
// The operands of an asm statement have to be written one by one, and no template can do that: hence the macros, which end
// with this file.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace cuflash::sm90 {

// Sums and operands in registers are as the threads have left them: products may begin.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }

// Closes a group of products.
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }

// Waits until all but the last kPending groups have ended.
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
}

// Keeps the compiler from moving uses of registers across this place: around products and behind waits, which it does not
// know to change or to free them.
template <int kBlocks>
__device__ __forceinline__ void pin(float (&x)[kBlocks][4]) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    asm volatile("" : "+f"(x[i][0]), "+f"(x[i][1]), "+f"(x[i][2]), "+f"(x[i][3]) : : "memory");
  }
}

template <int kBlocks>
__device__ __forceinline__ void pin(uint32_t (&x)[kBlocks][4]) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    asm volatile("" : "+r"(x[i][0]), "+r"(x[i][1]), "+r"(x[i][2]), "+r"(x[i][3]) : : "memory");
  }
}

#define CUFLASH_NAMES_32                                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CUFLASH_NAMES_64                                                                                 \
  CUFLASH_NAMES_32                                                                                       \
  ", "                                                                                                   \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
  "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CUFLASH_NAMES_128                                                                                \
  CUFLASH_NAMES_64                                                                                       \
  ", "                                                                                                   \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
  "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "   \
  "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, "     \
  "%119, %120, %121, %122, %123, %124, %125, %126, %127"
#define CUFLASH_BLOCK(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define CUFLASH_BLOCKS_4(d, i) \
  CUFLASH_BLOCK(d, i), CUFLASH_BLOCK(d, i + 1), CUFLASH_BLOCK(d, i + 2), CUFLASH_BLOCK(d, i + 3)
#define CUFLASH_SUMS_32(d) CUFLASH_BLOCKS_4(d, 0), CUFLASH_BLOCKS_4(d, 4)
#define CUFLASH_SUMS_64(d) CUFLASH_SUMS_32(d), CUFLASH_BLOCKS_4(d, 8), CUFLASH_BLOCKS_4(d, 12)
#define CUFLASH_SUMS_128(d) \
  CUFLASH_SUMS_64(d), CUFLASH_BLOCKS_4(d, 16), CUFLASH_BLOCKS_4(d, 20), CUFLASH_BLOCKS_4(d, 24), CUFLASH_BLOCKS_4(d, 28)

// d (+)= a b: `operands` are a, b, and behind `add`, a predicate made of operand `flag`, whether signs change (no) and
// which operands lie with their depth outermost.
#define CUFLASH_PRODUCT(n, type, sums, operands, flag, order) \
  "{\n.reg .pred add;\nsetp.ne.b32 add, " flag                \
  ", 0;\n"                                                    \
  "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" sums "}, " operands ", add, 1, 1, " order ";\n}"
#define CUFLASH_MULTIPLY(n, count, a_and_b, flag, order, ...)                            \
  if constexpr (std::is_same_v<T, __half>) {                                             \
    asm volatile(CUFLASH_PRODUCT(n, "f16", CUFLASH_NAMES_##count, a_and_b, flag, order)  \
                 : CUFLASH_SUMS_##count(d)                                               \
                 : __VA_ARGS__, "l"(b), "r"(static_cast<int>(add)));                     \
  } else {                                                                               \
    asm volatile(CUFLASH_PRODUCT(n, "bf16", CUFLASH_NAMES_##count, a_and_b, flag, order) \
                 : CUFLASH_SUMS_##count(d)                                               \
                 : __VA_ARGS__, "l"(b), "r"(static_cast<int>(add)));                     \
  }

// d = a b, or d += a b if `add`. Both operands lie in shared memory with their depth contiguous (describe_rows()).
template <class T, int kBlocks>
__device__ __forceinline__ void multiply(float (&d)[kBlocks][4], uint64_t a, uint64_t b, bool add) {
  static_assert(kBlocks == 8 || kBlocks == 16);
  if constexpr (kBlocks == 8) {
    CUFLASH_MULTIPLY("64", 32, "%32, %33", "%34", "0, 0", "l"(a))
  } else {
    CUFLASH_MULTIPLY("128", 64, "%64, %65", "%66", "0, 0", "l"(a))
  }
}

// The same with a in registers, laid out as operand a of mma.m16n8k16, and b with its depth outermost
// (describe_columns()).
template <class T, int kBlocks>
__device__ __forceinline__ void multiply(float (&d)[kBlocks][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  static_assert(kBlocks == 8 || kBlocks == 16 || kBlocks == 32);
  if constexpr (kBlocks == 8) {
    CUFLASH_MULTIPLY("64", 32, "{%32, %33, %34, %35}, %36", "%37", "1", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]))
  } else if constexpr (kBlocks == 16) {
    CUFLASH_MULTIPLY("128", 64, "{%64, %65, %66, %67}, %68", "%69", "1", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]))
  } else {
    CUFLASH_MULTIPLY(
        "256", 128, "{%128, %129, %130, %131}, %132", "%133", "1", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
    )
  }
}

// The same with both operands in shared memory and their depth outermost.
template <class T, int kBlocks>
__device__ __forceinline__ void multiply_columns(float (&d)[kBlocks][4], uint64_t a, uint64_t b, bool add) {
  static_assert(kBlocks == 8);
  CUFLASH_MULTIPLY("64", 32, "%32, %33", "%34", "1, 1", "l"(a))
}

#undef CUFLASH_MULTIPLY
#undef CUFLASH_PRODUCT
#undef CUFLASH_SUMS_128
#undef CUFLASH_SUMS_64
#undef CUFLASH_SUMS_32
#undef CUFLASH_BLOCKS_4
#undef CUFLASH_BLOCK
#undef CUFLASH_NAMES_128
#undef CUFLASH_NAMES_64
#undef CUFLASH_NAMES_32

}  // namespace cuflash::sm90
