// SPDX-License-Identifier: MIT
// Matrix products of a warp on fragments of 16 x 16 elements, through the documented interface alone (CUDA C++
// Programming Guide, warp matrix functions). Which thread holds which element of a fragment is not specified. What can be
// relied on: all fragments of a type are laid out alike, so that what is done element by element needs no layout; and
// a fragment loaded from a tile whose elements hold their own place tells each thread which elements it has (ElementMap).
#pragma once

#include <mma.h>

#include <cstdint>

#include "kernels/common/numeric_traits.cuh"
#include "kernels/wmma/ptx.cuh"
#include "kernels/wmma/tiles.h"

namespace cuflash::wmma {

namespace nv = nvcuda::wmma;

// fp16 fragments exist from sm_70 on, bf16 ones from sm_80 on: a kernel without fragments has no body.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
template <class T>
inline constexpr bool kHasFragments = false;
template <>
inline constexpr bool kHasFragments<__half> = true;
#else
template <class T>
inline constexpr bool kHasFragments = true;
#endif

using Sums = nv::fragment<nv::accumulator, kSide, kSide, kSide, float>;
inline constexpr int kElements = 8;  // of Sums, per thread
static_assert(Sums::num_elements == kElements);

// Calls f(i, j, e) for element e of each fragment (i, j) of a block.
template <int kRows, int kCols, class F>
__device__ __forceinline__ void for_each_place(F&& f) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kCols; ++j) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) f(i, j, e);
    }
  }
}

template <int kRows, int kCols>
__device__ __forceinline__ void clear(Sums (&x)[kRows][kCols]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kCols; ++j) nv::fill_fragment(x[i][j], 0.0f);
  }
}

// An operand of a product in shared memory. The depth of the product runs along the rows of the tile, or down its columns.
template <class T, int kPitch, bool kDepthAlongRows>
struct Operand {
  using RowMajor = std::conditional_t<kDepthAlongRows, nv::row_major, nv::col_major>;
  using A = nv::fragment<nv::matrix_a, kSide, kSide, kSide, T, RowMajor>;
  using ColMajor = std::conditional_t<kDepthAlongRows, nv::col_major, nv::row_major>;
  using B = nv::fragment<nv::matrix_b, kSide, kSide, kSide, T, ColMajor>;

  const T* first;

  // The fragment at depth `depth` of the i-th 16 rows of a or columns of b.
  template <class Fragment>
  __device__ __forceinline__ void load(Fragment& fragment, int i, int depth) const {
    load_from_shared(
        fragment, first + (kDepthAlongRows ? i * kSide * kPitch + depth : depth * kPitch + i * kSide), kPitch
    );
  }
};

template <int kPitch, class T>
__device__ __forceinline__ Operand<T, kPitch, true> along_rows(const T* first) {
  return {first};
}
template <int kPitch, class T>
__device__ __forceinline__ Operand<T, kPitch, false> down_columns(const T* first) {
  return {first};
}

// sums += a b
template <int kDepth, int kRows, int kCols, class A, class B>
__device__ __forceinline__ void add_product(Sums (&sums)[kRows][kCols], const A& a, const B& b) {
#pragma unroll
  for (int depth = 0; depth < kDepth; depth += kSide) {
    typename A::A rows[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) a.load(rows[i], i, depth);
#pragma unroll
    for (int j = 0; j < kCols; ++j) {
      typename B::B cols;
      b.load(cols, j, depth);
#pragma unroll
      for (int i = 0; i < kRows; ++i) nv::mma_sync(sums[i][j], rows[i], cols, sums[i][j]);
    }
  }
}

__device__ __forceinline__ void to_scratch(float* scratch, const Sums& x) {
  nv::store_matrix_sync(scratch, x, kScratchPitch, nv::mem_row_major);
  __syncwarp();
}

__device__ __forceinline__ void from_scratch(Sums& x, const float* scratch) {
  __syncwarp();
  nv::load_matrix_sync(x, scratch, kScratchPitch, nv::mem_row_major);
  __syncwarp();
}

// Row and column of each element of Sums that a thread holds, four bits each.
class ElementMap {
 public:
  __device__ __forceinline__ ElementMap(float* scratch, int lane) {
    for (int i = lane; i < kSide * kSide; i += kWarpSize) {
      scratch[i / kSide * kScratchPitch + i % kSide] = static_cast<float>(i);
    }
    Sums place;
    from_scratch(place, scratch);
    for (int e = 0; e < kElements; ++e) places_[e / 4] |= static_cast<uint32_t>(place.x[e]) << (8 * (e % 4));
  }
  // The same map, of which the compiler keeps nothing unpacked from one use to the next: registers are scarcer than
  // instructions.
  __device__ __forceinline__ ElementMap anew() const {
    ElementMap map = *this;
    forget(map.places_[0]);
    forget(map.places_[1]);
    return map;
  }
  __device__ __forceinline__ int row(int e) const { return places_[e / 4] >> (8 * (e % 4) + 4) & 15; }
  __device__ __forceinline__ int col(int e) const { return places_[e / 4] >> (8 * (e % 4)) & 15; }

 private:
  uint32_t places_[2] = {};
};

// Calls f(element, row, column) for what the thread holds of a block of fragments.
template <int kRows, int kCols, class F>
__device__ __forceinline__ void for_each_element(Sums (&x)[kRows][kCols], const ElementMap& map, F&& f) {
  for_each_place<kRows, kCols>([&](int i, int j, int e) {
    f(x[i][j].x[e], i * kSide + map.row(e), j * kSide + map.col(e));
  });
}

// Rounds a block of fragments to T.
template <int kPitch, class T, int kRows, int kCols>
__device__ __forceinline__ void store_rounded(T* tile, const Sums (&x)[kRows][kCols], const ElementMap& map) {
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    T* to = tile + map.row(e) * kPitch + map.col(e);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kCols; ++j) to[i * kSide * kPitch + j * kSide] = from_float<T>(x[i][j].x[e]);
    }
  }
}

// Each element becomes the combination of all of its row. Each row by two lanes.
template <class Combine>
__device__ __forceinline__ void combine_rows(Sums& x, float* scratch, int lane, Combine&& combine) {
  to_scratch(scratch, x);
  float4* half = reinterpret_cast<float4*>(scratch + lane / 2 * kScratchPitch + lane % 2 * 8);
  const auto combine_quad = [&](const float4& v) { return combine(combine(v.x, v.y), combine(v.z, v.w)); };
  float value = combine(combine_quad(half[0]), combine_quad(half[1]));
  value = combine(value, __shfl_xor_sync(kFullWarp, value, 1));
  half[0] = half[1] = make_float4(value, value, value, value);
  from_scratch(x, scratch);
}

// x = f(x, row, column), one element after the other: for functions too long to be repeated for each element.
template <int kRows, int kCols, class F>
__device__ __forceinline__ void map_one_by_one(Sums (&x)[kRows][kCols], float* scratch, int lane, F&& f) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kCols; ++j) {
      to_scratch(scratch, x[i][j]);
#pragma unroll 1
      for (int e = lane; e < kSide * kSide; e += kWarpSize) {
        float& value = scratch[e / kSide * kScratchPitch + e % kSide];
        value = f(value, i * kSide + e / kSide, j * kSide + e % kSide);
      }
      from_scratch(x[i][j], scratch);
    }
  }
}

}  // namespace cuflash::wmma
