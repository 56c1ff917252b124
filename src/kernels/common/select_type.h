// SPDX-License-Identifier: MIT
// From run-time values to compile-time ones, by functions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>
#include <cstddef>
#include <utility>

#include "cuflash/cuflash.h"
#include "status.h"

namespace cuflash {

template <class T>
struct TypeTag {
  using Type = T;
};

// Calls f(TypeTag<T>{}) with the C++ type of a validated dtype.
template <class F>
auto with_dtype(cuflashDataType_t dtype, F&& f) {
  switch (dtype) {
    case CUFLASH_R_16F: return f(TypeTag<__half>{});
    case CUFLASH_R_16BF: return f(TypeTag<__nv_bfloat16>{});
    default: return f(TypeTag<float>{});
  }
}

// The first row of a tile table, sorted by head_dim, that has capacity for a head_dim; the last one if none has.
template <class Tile, size_t kRows>
constexpr const Tile& tile_for(const std::array<Tile, kRows>& table, int head_dim) {
  for (const Tile& tile : table) {
    if (head_dim <= tile.head_dim) return tile;
  }
  return table.back();
}

// Calls f.operator()<kHeadDim>() for the row of kTable with this capacity.
template <const auto& kTable, class F>
Status with_head_dim(int head_dim, F&& f) {
  Status status;
  const bool found = [&]<size_t... kRow>(std::index_sequence<kRow...>) {
    return (
        (kTable[kRow].head_dim == head_dim && (status = f.template operator()<kTable[kRow].head_dim>(), true)) || ...
    );
  }
  (std::make_index_sequence<kTable.size()>{});
  if (found) return status;
  return fail(CUFLASH_STATUS_INTERNAL_ERROR, "no kernel instance has capacity head_dim %d", head_dim);
}

}  // namespace cuflash
