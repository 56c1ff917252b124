// SPDX-License-Identifier: MIT
// nvcuda::wmma (CUDA C++ Programming Guide, warp matrix functions) for 16 x 16 x 16 products with sums in fp32. Which
// lane holds which element is not specified there, and here is no layout that a GPU has: what relies on one, fails.
#pragma once

#include <algorithm>

#include "matrices.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int kM, int kN, int kK, class T, class Layout = void>
struct fragment {
  static constexpr int num_elements = 8;
  T x[num_elements];
};

using Sums = fragment<accumulator, 16, 16, 16, float>;

// The place in the matrix, by rows, of element e of a lane.
inline int place_of(int lane, int e) { return (lane * 5 + 3) % 32 * 8 + (e ^ lane % 8); }

// All lanes must name the same matrix, at a multiple of 32 bytes with rows at multiples of 16.
template <class T>
void meet_at(const T* matrix, unsigned pitch) {
  struct Lane {
    const T* matrix;
    unsigned pitch;
    bool operator==(const Lane&) const = default;
  };
  if (reinterpret_cast<uintptr_t>(matrix) % 32 != 0) emulator::fault("a matrix is not at a multiple of 32 bytes");
  if (pitch * sizeof(T) % 16 != 0) emulator::fault("the pitch of a matrix is not a multiple of 16 bytes");
  const Lane lane{matrix, pitch};
  emulator::meet_warp(
      [](const void* const* lanes) {
        for (unsigned l = 1; l < emulator::kWarpSize; ++l) {
          if (*static_cast<const Lane*>(lanes[l]) == *static_cast<const Lane*>(lanes[0])) continue;
          emulator::fault("lanes of a warp name different matrices");
        }
      },
      &lane
  );
}

// Calls f(element of the fragment, offset in memory) for what this lane holds.
template <class F>
void for_each_element(unsigned pitch, bool by_rows, F f) {
  for (int e = 0; e < 8; ++e) {
    const int place = place_of(static_cast<int>(emulator::current_thread % emulator::kWarpSize), e);
    const unsigned row = place / 16, col = place % 16;
    f(e, by_rows ? row * pitch + col : col * pitch + row);
  }
}

template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& to, const T* from, unsigned pitch) {
  meet_at(from, pitch);
  for_each_element(pitch, std::is_same_v<Layout, row_major>, [&](int e, unsigned offset) { to.x[e] = from[offset]; });
}

inline void load_matrix_sync(Sums& to, const float* from, unsigned pitch, layout_t layout) {
  meet_at(from, pitch);
  for_each_element(pitch, layout == mem_row_major, [&](int e, unsigned offset) { to.x[e] = from[offset]; });
}

inline void store_matrix_sync(float* to, const Sums& from, unsigned pitch, layout_t layout) {
  meet_at(to, pitch);
  for_each_element(pitch, layout == mem_row_major, [&](int e, unsigned offset) { to[offset] = from.x[e]; });
}

template <class Fragment, class Value>
void fill_fragment(Fragment& fragment, Value value) {
  std::fill(fragment.x, fragment.x + Fragment::num_elements, value);
}

template <class T, class LayoutA, class LayoutB>
void mma_sync(
    Sums& d,
    const fragment<matrix_a, 16, 16, 16, T, LayoutA>& a,
    const fragment<matrix_b, 16, 16, 16, T, LayoutB>& b,
    const Sums& c
) {
  struct Lane {
    const T *a, *b;
    const float* c;
    float* d;
  };
  const Lane lane{a.x, b.x, c.x, d.x};
  emulator::meet_warp(
      [](const void* const* lanes) {
        float a[16][16], b[16][16], sum[16][16] = {};
        for (int l = 0; l < 32; ++l) {
          const Lane& lane = *static_cast<const Lane*>(lanes[l]);
          for (int e = 0; e < 8; ++e) {
            const int place = place_of(l, e);
            a[place / 16][place % 16] = emulator::to_float(lane.a[e]);
            b[place / 16][place % 16] = emulator::to_float(lane.b[e]);
          }
        }
        for (int i = 0; i < 16; ++i) {
          for (int k = 0; k < 16; ++k) {
            for (int j = 0; j < 16; ++j) sum[i][j] += a[i][k] * b[k][j];
          }
        }
        for (int l = 0; l < 32; ++l) {
          const Lane& lane = *static_cast<const Lane*>(lanes[l]);
          for (int e = 0; e < 8; ++e) lane.d[e] = lane.c[e] + sum[place_of(l, e) / 16][place_of(l, e) % 16];
        }
      },
      &lane
  );
}

}  // namespace nvcuda::wmma
