// SPDX-License-Identifier: MIT
// The room's tile table. A row serves every head_dim and head_dim_v up to its capacity.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cuflash::scalar {

struct Tile {
  int head_dim;  // capacity
  int block_m;   // query rows of a block (key rows in the dk/dv kernel), one warp each
  int block_n;   // rows of the other side per step, one lane each
};

// clang-format off
inline constexpr std::array kTiles = {
    Tile{.head_dim = 32,  .block_m = 8, .block_n = 32},
    Tile{.head_dim = 64,  .block_m = 8, .block_n = 32},
    Tile{.head_dim = 128, .block_m = 8, .block_n = 32},
    Tile{.head_dim = 256, .block_m = 8, .block_n = 32},
};
// clang-format on

// Row pitch in shared memory: odd, so that 32 lanes reading one column of 32 rows hit 32 banks.
constexpr int pitch(int head_dim) { return head_dim + 1; }

// One tile of block_n rows, and `row_vectors` vectors for each of the block's rows.
constexpr size_t shared_bytes(const Tile& tile, int row_vectors) {
  return sizeof(float) * (static_cast<size_t>(tile.block_n) * static_cast<size_t>(pitch(tile.head_dim)) +
                          static_cast<size_t>(tile.block_m * row_vectors) * static_cast<size_t>(tile.head_dim));
}

inline constexpr int kFwdRowVectors = 1;           // q
inline constexpr int kBwdRowVectors = 2;           // q and dout, or k and v
inline constexpr size_t kSharedLimit = 64 * 1024;  // opt-in limit of sm_75, the smallest of all

static_assert([] {
  for (const Tile& tile : kTiles) {
    if (tile.block_n != 32 || shared_bytes(tile, kBwdRowVectors) > kSharedLimit) return false;
  }
  return true;
}());

}  // namespace cuflash::scalar
