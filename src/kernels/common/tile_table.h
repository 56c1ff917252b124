// SPDX-License-Identifier: MIT
// The tile tables of the rooms: arrays of rows that are sorted by head_dim, a row's capacity. What fits, and from the plan
// to a row at compile time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "registry.h"

namespace cuflash {

// What a capacity must hold.
constexpr int32_t wider_head_dim(const Attention& a) { return std::max(a.head_dim, a.head_dim_v); }

// The first row that has capacity for a head_dim; the last one if none has.
template <class Tile, size_t kRows>
constexpr const Tile& tile_for(const std::array<Tile, kRows>& table, int head_dim) {
  for (const Tile& tile : table) {
    if (head_dim <= tile.head_dim) return tile;
  }
  return table.back();
}

// The shared memory per block that a GPU must offer for a row: what a block takes, or more where the row is made for
// several blocks per SM.
template <class Tile>
constexpr size_t fitting_bytes(const Tile& tile) {
  if constexpr (requires { tile.fitting_bytes(); }) {
    return tile.fitting_bytes();
  } else {
    return tile.shared_bytes();
  }
}

// The first row that has capacity and fits; null if there is none. Of the rows of one capacity, the largest comes first.
template <class Tile, size_t kRows>
constexpr const Tile* fitting_tile(const std::array<Tile, kRows>& table, int head_dim, size_t shared_limit) {
  for (const Tile& tile : table) {
    if (head_dim <= tile.head_dim && fitting_bytes(tile) <= shared_limit) return &tile;
  }
  return nullptr;
}

// The row of kTable for a problem on a device; null if none fits: then refuse_unfitting() refuses.
template <const auto& kTable>
constexpr const auto* tile_on(const Attention& a, const Device& device) {
  return fitting_tile(kTable, wider_head_dim(a), static_cast<size_t>(device.max_shared_bytes));
}

// KernelFamily::refine of a room that refuses nothing else.
template <const auto& kTable, class Problem>
Refusal refuse_unfitting(const Problem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  if (tile_on<kTable>(a, device) != nullptr) return {};
  return cannot(
      a.head_dim_v > a.head_dim ? "head_dim_v" : "head_dim",
      wider_head_dim(a),
      "needs tiles that do not fit into this GPU's shared memory"
  );
}

// Calls f.operator()<kHeadDim>() for the capacity of kTable that the plan names.
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

// Calls f.operator()<kRow>() for the plan's row of kTable, among those with this capacity.
template <const auto& kTable, int kHeadDim, class F>
Status with_tile(const Plan& plan, F&& f) {
  Status status;
  const bool found = [&]<int... kRow>(std::integer_sequence<int, kRow...>) {
    return ([&] {
      if constexpr (kTable[kRow].head_dim == kHeadDim) {
        if (kRow == plan.tile_row) {
          status = f.template operator()<kRow>();
          return true;
        }
      }
      return false;
    }() || ...);
  }
  (std::make_integer_sequence<int, static_cast<int>(kTable.size())>());
  if (found) return status;
  return fail(CUFLASH_STATUS_INTERNAL_ERROR, "tile row %d does not have capacity head_dim %d", plan.tile_row, kHeadDim);
}

}  // namespace cuflash
