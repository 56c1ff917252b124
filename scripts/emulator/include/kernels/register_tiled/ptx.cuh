// SPDX-License-Identifier: MIT
// In place of src/kernels/register_tiled/ptx.cuh, which says what the functions do.
#pragma once

#include "matrices.h"

namespace cuflash::register_tiled {

inline void copy_16_bytes(float* to, const void* from, int used) { emulator::copy_async(to, from, 16, used); }
inline void copy_4_bytes(float* to, const void* from, int used) { emulator::copy_async(to, from, 4, used); }

inline void add_quad(float* to, const float (&quad)[4], int used, bool aligned) {
  if (aligned) return emulator::add_quad(to, quad[0], quad[1], quad[2], quad[3]);
  for (int e = 0; e < used && e < 4; ++e) to[e] += quad[e];
}

}  // namespace cuflash::register_tiled
