// SPDX-License-Identifier: MIT
// Products in registers: a thread owns a micro-tile of kRows x kCols sums, and per step of the depth reads kRows + kCols
// floats from shared memory for kRows * kCols multiply-adds.
//
// The currency is the wavefront, one 128-byte access of shared memory: the four schedulers share one per clock. A 16-byte
// load of a warp takes at least two, and gets away with two only if in each half of the warp lanes i and i ^ 1, or i and
// i ^ 2, read the same address. lane_grid() arranges the warp so that both operands do. A micro-tile then makes
// kRows * kCols / ((kRows + kCols) / 2) multiply-adds per wavefront and needs more than 4 to keep the FMA units busy:
// 4x4 makes 4, 8x4 5.3, 8x8 8, 8x16 10.7.
#pragma once

#include "kernels/register_tiled/position.h"

namespace cuflash::register_tiled {

// Reduces over the lanes that share a row of lane_grid<kLanes>().
template <int kLanes, class Combine>
__device__ __forceinline__ float reduce_over_lanes(float x, Combine&& combine) {
  static_assert(kLanes < kWarpSize);
#pragma unroll
  for (int distance = 2; distance < 2 * kLanes; distance *= 2) {
    x = combine(x, __shfl_xor_sync(kFullWarp, x, distance));
  }
  return x;
}

__device__ __forceinline__ void load_quad(float* to, const float* from) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}

__device__ __forceinline__ void store_quad(float* to, const float (&quad)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(quad[0], quad[1], quad[2], quad[3]);
}

template <int kRows, int kCols>
__device__ __forceinline__ void clear(float (&sums)[kRows][kCols]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kCols; ++j) sums[i][j] = 0.0f;
  }
}

template <int kRows, int kCols>
__device__ __forceinline__ void scale_all(float (&sums)[kRows][kCols], float factor) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kCols; ++j) sums[i][j] *= factor;
  }
}

// to[i][j] = f(from[i][j], i, j), where f is long: by one loop over a thread's own places in shared memory, at(i, j), since
// a copy of f for every register would be.
template <int kRows, int kCols, class At, class F>
__device__ __forceinline__ void map_in_memory(
    float (&to)[kRows][kCols], const float (&from)[kRows][kCols], float* memory, At&& at, F&& f
) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kCols; ++j) memory[at(i, j)] = from[i][j];
  }
#pragma unroll 1
  for (int index = 0; index < kRows * kCols; ++index) {
    const int i = index / kCols;
    const int j = index % kCols;
    memory[at(i, j)] = f(memory[at(i, j)], i, j);
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kCols; ++j) to[i][j] = memory[at(i, j)];
  }
}

// sums += x (outer) y, to and fro, so that one operand besides the sum is always one of the previous multiply-add, and
// comes from the operand cache of the FMA unit instead of the registers. Registers have two banks, even and odd, and a
// multiply-add that reads two of one bank takes a clock longer; which operand is kept decides what else is read.
enum class Keep { kX, kY };

template <Keep kKeep, int kRows, int kCols>
__device__ __forceinline__ void add_outer(
    float (&sums)[kRows][kCols], const float (&x)[kRows], const float (&y)[kCols]
) {
  constexpr int kOuter = kKeep == Keep::kX ? kRows : kCols;
  constexpr int kInner = kKeep == Keep::kX ? kCols : kRows;
#pragma unroll
  for (int outer = 0; outer < kOuter; ++outer) {
#pragma unroll
    for (int step = 0; step < kInner; ++step) {
      const int inner = outer % 2 == 0 ? step : kInner - 1 - step;
      const int i = kKeep == Keep::kX ? outer : inner;
      const int j = kKeep == Keep::kX ? inner : outer;
      sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
    }
  }
}

// sums += sum over k < kDepth of x(k) (outer) y(k). load_x(base, k, x) and load_y(base, k, y) read step base + k, where k
// is a constant: addresses are a register and an immediate. The next step is loaded while the present one is multiplied.
template <int kDepth, Keep kKeep, int kRows, int kCols, class LoadX, class LoadY>
__device__ __forceinline__ void add_product(float (&sums)[kRows][kCols], LoadX&& load_x, LoadY&& load_y) {
  // Bodies of up to 512 multiply-adds: every jump costs, and what outgrows the instruction cache costs more.
  constexpr int kUnroll = kRows * kCols >= 128 ? 4 : 8;
  static_assert(kDepth % kUnroll == 0);
  float x[2][kRows], y[2][kCols];
  load_x(0, 0, x[0]);
  load_y(0, 0, y[0]);
#pragma unroll 1
  for (int base = 0; base < kDepth; base += kUnroll) {
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      // The last load of all repeats the first one: a branch would cost more.
      const int next = k + 1 < kUnroll ? base : (base + kUnroll) % kDepth;
      load_x(next, (k + 1) % kUnroll, x[(k + 1) % 2]);
      load_y(next, (k + 1) % kUnroll, y[(k + 1) % 2]);
      add_outer<kKeep>(sums, x[k % 2], y[k % 2]);
    }
  }
}

// sums += sum over k < kDepth of x(k) (outer) y(k), for y that lie row by row, column j of the sums being one row: four
// elements of each row are loaded at a time.
template <int kDepth, int kRows, int kCols, class LoadX, class LoadY>
__device__ __forceinline__ void add_column_row_product(float (&sums)[kRows][kCols], LoadX&& load_x, LoadY&& load_y) {
  constexpr int kUnroll = 8;
  static_assert(kDepth % kUnroll == 0);
  float x[2][kRows], y[2][kCols][4];
  load_x(0, 0, x[0]);
  load_y(0, y[0]);
#pragma unroll 1
  for (int base = 0; base < kDepth; base += kUnroll) {
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      // The last load of all repeats the first one: a branch would cost more.
      const int next = k + 1 < kUnroll ? base : (base + kUnroll) % kDepth;
      load_x(next, (k + 1) % kUnroll, x[(k + 1) % 2]);
      if (k % 4 == 0) load_y(k == 0 ? base + 4 : (base + kUnroll) % kDepth, y[(k / 4 + 1) % 2]);
      float column[kCols];
#pragma unroll
      for (int j = 0; j < kCols; ++j) column[j] = y[k / 4 % 2][j][k % 4];
      add_outer<Keep::kY>(sums, x[k % 2], column);
    }
  }
}

// sums[i][j] = a_i . b_j (they are cleared here), for rows of head_dim elements, four of which are loaded at a time.
template <int kDepth, int kRows, int kCols, class LoadA, class LoadB>
__device__ __forceinline__ void dot_product(float (&sums)[kRows][kCols], LoadA&& load_a, LoadB&& load_b) {
  constexpr int kUnroll = 2;
  static_assert(kDepth % (4 * kUnroll) == 0);
  clear(sums);
  float a[2][kRows][4], b[2][kCols][4];
  load_a(0, a[0]);
  load_b(0, b[0]);
#pragma unroll 1
  for (int base = 0; base < kDepth; base += 4 * kUnroll) {
#pragma unroll
    for (int quad = 0; quad < kUnroll; ++quad) {
      // The last load of all repeats the first one: a branch would cost more.
      const int next = quad + 1 < kUnroll ? base + 4 * (quad + 1) : (base + 4 * kUnroll) % kDepth;
      load_a(next, a[(quad + 1) % 2]);
      load_b(next, b[(quad + 1) % 2]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int j = 0; j < kCols; ++j) {
#pragma unroll
          for (int step = 0; step < kRows; ++step) {
            const int i = (j + e) % 2 == 0 ? step : kRows - 1 - step;
            sums[i][j] = fmaf(a[quad % 2][i][e], b[quad % 2][j][e], sums[i][j]);
          }
        }
      }
    }
  }
}

// sums += sum over k < kDepth of w(., k) (outer) y(k), for weights that lie row by row: four of a row are loaded at a time,
// and not ahead, since beside two gradients registers are short.
template <int kDepth, int kRows, int kCols, class LoadW, class LoadY>
__device__ __forceinline__ void add_row_product(float (&sums)[kRows][kCols], LoadW&& load_w, LoadY&& load_y) {
  constexpr int kUnroll = 2;  // quads
  static_assert(kDepth % (4 * kUnroll) == 0);
#pragma unroll 1
  for (int base = 0; base < kDepth; base += 4 * kUnroll) {
#pragma unroll
    for (int quad = 0; quad < kUnroll; ++quad) {
      float w[kRows][4];
      load_w(base + 4 * quad, w);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float x[kRows], y[kCols];
        load_y(base, 4 * quad + k, y);
#pragma unroll
        for (int i = 0; i < kRows; ++i) x[i] = w[i][k];
        add_outer<Keep::kX>(sums, x, y);
      }
    }
  }
}

// A pair that the mask hides has weight -0, a visible one never: where a tile holds NaN or Inf, that is how a product
// knows what it must leave out, since 0 * NaN is not 0.
inline constexpr float kHidden = -0.0f;
__device__ __forceinline__ bool is_hidden(float weight) { return __float_as_uint(weight) == 0x80000000u; }

// add_product() for tiles that hold NaN or Inf: weights x that are hidden add nothing.
template <int kDepth, int kRows, int kCols, class LoadX, class LoadY>
__device__ __forceinline__ void add_visible_product(float (&sums)[kRows][kCols], LoadX&& load_x, LoadY&& load_y) {
#pragma unroll 1
  for (int base = 0; base < kDepth; base += 2) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float x[kRows], y[kCols];
      load_x(base, k, x);
      load_y(base, k, y);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (is_hidden(x[i])) continue;
#pragma unroll
        for (int j = 0; j < kCols; ++j) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
      }
    }
  }
}

}  // namespace cuflash::register_tiled
