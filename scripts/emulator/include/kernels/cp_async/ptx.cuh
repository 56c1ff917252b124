// SPDX-License-Identifier: MIT
// In place of src/kernels/cp_async/ptx.cuh, which says what the functions do and which lane holds which element.
#pragma once

#include "kernels/common/ptx.cuh"
#include "matrices.h"

namespace cuflash::cp_async {

using emulator::add_quad;

inline void copy_16_bytes(uint32_t to, const void* from, int used) {
  emulator::copy_async(emulator::shared_pointer(to, 16), from, 16, static_cast<unsigned>(used));
}
inline void commit_copies() { emulator::commit_copies(); }
template <int kPending>
void wait_copies() {
  emulator::wait_copies(kPending);
}

template <bool kTransposed>
void load_four_matrices(uint32_t (&r)[4], uint32_t address) {
  struct Lane {
    uint32_t* r;
    uint32_t address;
  };
  const Lane lane{r, address};
  emulator::meet_warp(
      [](const void* const* lanes) {
        for (int i = 0; i < 4; ++i) {
          uint16_t matrix[8][8];
          for (int row = 0; row < 8; ++row) {
            const auto* giver = static_cast<const Lane*>(lanes[8 * i + row]);
            std::memcpy(matrix[row], emulator::shared_pointer(giver->address, 16), 16);
          }
          for (int l = 0; l < 32; ++l) {
            const int row = l / 4, col = 2 * (l % 4);
            const uint16_t low = kTransposed ? matrix[col][row] : matrix[row][col];
            const uint16_t high = kTransposed ? matrix[col + 1][row] : matrix[row][col + 1];
            static_cast<const Lane*>(lanes[l])->r[i] = low | uint32_t{high} << 16;
          }
        }
      },
      &lane
  );
}
inline void load_matrices(uint32_t (&r)[4], uint32_t address) { load_four_matrices<false>(r, address); }
inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) { load_four_matrices<true>(r, address); }

template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Lane {
    float* c;
    const uint32_t* a;
    uint32_t b0, b1;
  };
  const Lane lane{c, a, b0, b1};
  emulator::meet_warp(
      [](const void* const* lanes) {
        float a[16][16], b[16][8], sum[16][8] = {};
        const auto unpack = [](uint32_t pair, float* low, float* high) {
          *low = emulator::float_of_bits<T>(static_cast<uint16_t>(pair));
          *high = emulator::float_of_bits<T>(static_cast<uint16_t>(pair >> 16));
        };
        for (int l = 0; l < 32; ++l) {
          const Lane& lane = *static_cast<const Lane*>(lanes[l]);
          const int r = l / 4, c = 2 * (l % 4);
          unpack(lane.a[0], &a[r][c], &a[r][c + 1]);
          unpack(lane.a[1], &a[r + 8][c], &a[r + 8][c + 1]);
          unpack(lane.a[2], &a[r][c + 8], &a[r][c + 9]);
          unpack(lane.a[3], &a[r + 8][c + 8], &a[r + 8][c + 9]);
          unpack(lane.b0, &b[c][r], &b[c + 1][r]);
          unpack(lane.b1, &b[c + 8][r], &b[c + 9][r]);
        }
        for (int i = 0; i < 16; ++i) {
          for (int k = 0; k < 16; ++k) {
            for (int j = 0; j < 8; ++j) sum[i][j] += a[i][k] * b[k][j];
          }
        }
        for (int l = 0; l < 32; ++l) {
          const Lane& lane = *static_cast<const Lane*>(lanes[l]);
          const int r = l / 4, c = 2 * (l % 4);
          lane.c[0] += sum[r][c];
          lane.c[1] += sum[r][c + 1];
          lane.c[2] += sum[r + 8][c];
          lane.c[3] += sum[r + 8][c + 1];
        }
      },
      &lane
  );
}

template <int kThreads>
void sync_warps(int barrier) {
  emulator::meet_block(barrier, kThreads);
}

template <int kThreads>
void arrive_warps(int barrier) {
  emulator::arrive_at_block(barrier, kThreads);
}

}  // namespace cuflash::cp_async
