// SPDX-License-Identifier: MIT
// In place of src/kernels/wmma/ptx.cuh, which says what the functions do.
#pragma once

#include <mma.h>

#include "matrices.h"

namespace cuflash::wmma {

template <class Use, class T, class Layout>
void load_from_shared(nvcuda::wmma::fragment<Use, 16, 16, 16, T, Layout>& fragment, const T* from, unsigned pitch) {
  nvcuda::wmma::load_matrix_sync(fragment, from, pitch);
}

inline void forget(uint32_t&) {}

inline void add_quad(float* to, const float4& x) { emulator::add_quad(to, x.x, x.y, x.z, x.w); }

}  // namespace cuflash::wmma
