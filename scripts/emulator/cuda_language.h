// SPDX-License-Identifier: MIT
// CUDA C++ as far as the kernels speak it, for a C++ compiler: included before everything else in their sources. What
// is missing here does not compile, so that nothing of a kernel is left out in silence.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

// After the toolkit's own headers, which define some of these words for C++ compilers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "device.h"

#undef __device__
#undef __global__
#undef __host__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __shared__
#undef __align__
#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace emulator {

constexpr unsigned kFullWarp = 0xffffffff;

// An object and no function that returns one: GCC 12 takes 0 for i in (a ? x : y)[i] if i comes of such a call.
struct ThreadIndex {
  struct {
    operator unsigned() const { return current_thread; }
  } x;
};

inline void expect_full_warp(unsigned mask) {
  if (mask != kFullWarp) fault("an operation of a part of a warp: the emulated device has none");
}

// Each lane receives the value of lane from(lane).
template <class T, class From>
T shuffle(unsigned mask, T value, From from) {
  struct Lane {
    T brought, received;
    unsigned from;
  };
  expect_full_warp(mask);
  Lane lane{value, {}, static_cast<unsigned>(from(current_thread % kWarpSize))};
  meet_warp(
      [](const void* const* lanes) {
        for (unsigned l = 0; l < kWarpSize; ++l) {
          auto* to = static_cast<Lane*>(const_cast<void*>(lanes[l]));
          to->received = static_cast<const Lane*>(lanes[to->from])->brought;
        }
      },
      &lane
  );
  return *const_cast<volatile T*>(&lane.received);
}

inline unsigned ballot(unsigned mask, bool value) {
  struct Lane {
    bool brought;
    unsigned received;
  };
  expect_full_warp(mask);
  Lane lane{value, 0};
  meet_warp(
      [](const void* const* lanes) {
        unsigned bits = 0;
        for (unsigned l = 0; l < kWarpSize; ++l) bits |= unsigned{static_cast<const Lane*>(lanes[l])->brought} << l;
        for (unsigned l = 0; l < kWarpSize; ++l) static_cast<Lane*>(const_cast<void*>(lanes[l]))->received = bits;
      },
      &lane
  );
  return *const_cast<volatile unsigned*>(&lane.received);
}

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace emulator

inline constexpr emulator::ThreadIndex threadIdx;
inline constexpr emulator::Extent &blockIdx = emulator::block_index, &blockDim = emulator::block_size,
                                  &gridDim = emulator::grid_size;

// ---- Barriers, and operations of a warp

inline void __syncthreads() { emulator::meet_block(0, blockDim.x); }
inline int __syncthreads_or(int value) { return emulator::meet_block(0, blockDim.x, value != 0) != 0; }
inline void __syncwarp(unsigned mask = emulator::kFullWarp) {
  emulator::expect_full_warp(mask);
  emulator::meet_warp([](const void* const*) {}, nullptr);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int from) {
  return emulator::shuffle(mask, value, [=](unsigned) { return from % emulator::kWarpSize; });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int other) {
  return emulator::shuffle(mask, value, [=](unsigned lane) { return lane ^ other; });
}
inline unsigned __ballot_sync(unsigned mask, bool value) { return emulator::ballot(mask, value); }
inline int __any_sync(unsigned mask, bool value) { return emulator::ballot(mask, value) != 0; }
inline int __all_sync(unsigned mask, bool value) { return emulator::ballot(mask, value) == emulator::kFullWarp; }

// ---- Memory and arithmetic

template <class T>
T atomicAdd(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to = before + value;
  return before;
}
inline unsigned __float_as_uint(float x) { return emulator::bits_as<unsigned>(x); }
inline int __float_as_int(float x) { return emulator::bits_as<int>(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __vimax3_s32(int a, int b, int c) { return std::max(a, std::max(b, c)); }

using std::isfinite;
using std::isnan;

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
