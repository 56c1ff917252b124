// SPDX-License-Identifier: MIT
// The room's tile tables. A row serves every head_dim and head_dim_v up to its capacity; of the rows with capacity, the
// first that fits into the shared memory of the GPU is taken.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/common/warp.h"

namespace cuflash::register_tiled {

// Forward: block_m query rows against block_n keys per step. A thread owns `rows` query rows, and of each row the scores
// of block_n / lanes keys and head_dim / lanes elements of o; `lanes` threads share a row.
struct FwdTile {
  int head_dim;  // capacity
  int block_m;
  int block_n;
  int rows;
  int lanes;
  int min_blocks;  // per SM, for the register allocator

  constexpr int threads() const { return block_m / rows * lanes; }
  // q lies transposed, [head_dim][rows]. Rows of k are padded, so that lanes of neighbouring keys are 4 banks apart.
  constexpr int pitch_k() const { return head_dim + 4; }
  constexpr int q_floats() const { return head_dim * block_m; }
  constexpr int k_floats() const { return block_n * pitch_k(); }
  constexpr int v_floats() const { return block_n * head_dim; }
  constexpr int p_floats() const { return block_n * block_m; }
  constexpr size_t shared_bytes() const {
    return sizeof(float) * static_cast<size_t>(q_floats() + k_floats() + v_floats() + p_floats());
  }
};

// Backward: a block owns block_own rows of its side (keys, or queries in the deterministic dq kernel) and streams
// block_step rows of the other side. All tiles are row-major.
struct BwdTile {
  int head_dim;  // capacity
  int block_own;
  int block_step;
  int threads;
  int min_blocks;  // per SM

  constexpr int warps() const { return threads / kWarpSize; }
  constexpr int warp_rows() const { return block_own / warps(); }   // own rows whose scores and gradients a warp holds
  constexpr int pitch() const { return head_dim + 4; }              // lanes of neighbouring rows: 4 banks apart
  constexpr int pitch_w() const { return block_step + 8; }          // of the weights, [own][step]
  constexpr int step_rows() const { return block_step / warps(); }  // rows of the streamed side whose dq a warp sums
  constexpr int tile_floats(int rows) const { return rows * pitch(); }
  constexpr size_t shared_bytes() const {
    return sizeof(float) *
           static_cast<size_t>(
               2 * tile_floats(block_own) + 2 * tile_floats(block_step) + block_own * pitch_w() + 2 * block_step
           );
  }
};

// clang-format off
inline constexpr std::array kFwdTiles = {
    FwdTile{.head_dim = 32,  .block_m = 64,  .block_n = 64, .rows = 4, .lanes = 8,  .min_blocks = 3},  //  41.0 KB
    FwdTile{.head_dim = 64,  .block_m = 128, .block_n = 64, .rows = 8, .lanes = 8,  .min_blocks = 2},  //  97.0 KB
    FwdTile{.head_dim = 64,  .block_m = 64,  .block_n = 32, .rows = 4, .lanes = 8,  .min_blocks = 3},  //  40.5 KB
    FwdTile{.head_dim = 128, .block_m = 128, .block_n = 32, .rows = 8, .lanes = 8,  .min_blocks = 2},  // 112.5 KB
    FwdTile{.head_dim = 128, .block_m = 32,  .block_n = 32, .rows = 4, .lanes = 8,  .min_blocks = 2},  //  52.5 KB
    FwdTile{.head_dim = 256, .block_m = 64,  .block_n = 64, .rows = 8, .lanes = 16, .min_blocks = 1},  // 209.0 KB
    FwdTile{.head_dim = 256, .block_m = 64,  .block_n = 32, .rows = 4, .lanes = 8,  .min_blocks = 1},  // 136.5 KB
};
inline constexpr std::array kBwdTiles = {
    BwdTile{.head_dim = 32,  .block_own = 64, .block_step = 64, .threads = 128, .min_blocks = 2},  //  54.5 KB
    BwdTile{.head_dim = 64,  .block_own = 64, .block_step = 64, .threads = 128, .min_blocks = 2},  //  86.5 KB
    BwdTile{.head_dim = 64,  .block_own = 32, .block_step = 32, .threads = 128, .min_blocks = 2},  //  39.2 KB
    BwdTile{.head_dim = 128, .block_own = 64, .block_step = 32, .threads = 128, .min_blocks = 2},  // 109.2 KB
    BwdTile{.head_dim = 128, .block_own = 32, .block_step = 16, .threads = 128, .min_blocks = 2},  //  52.6 KB
    BwdTile{.head_dim = 256, .block_own = 64, .block_step = 32, .threads = 256, .min_blocks = 1},  // 205.2 KB
    BwdTile{.head_dim = 256, .block_own = 32, .block_step = 32, .threads = 128, .min_blocks = 1},  // 135.2 KB
    BwdTile{.head_dim = 256, .block_own = 16, .block_step = 8,  .threads = 64,  .min_blocks = 1},  //  49.8 KB
};
// clang-format on

constexpr bool is_valid(const FwdTile& t) {
  const bool divides = t.block_m % t.rows == 0 && t.threads() % kWarpSize == 0 && kWarpSize % t.lanes == 0;
  const bool quads = t.rows % 4 == 0 && t.block_n % (4 * t.lanes) == 0 && t.head_dim % (4 * t.lanes) == 0;
  // The arrangement of p exchanges rows within groups of 32.
  return divides && quads && t.block_m % 32 == 0;
}

constexpr bool is_valid(const BwdTile& t) {
  return t.threads % kWarpSize == 0 && t.block_own % t.warps() == 0 && t.warp_rows() % 8 == 0 &&
         t.block_step % 8 == 0 && t.step_rows() % 4 == 0 && 4 % (t.step_rows() / 4) == 0 && t.head_dim % 32 == 0;
}

static_assert([] {
  for (const FwdTile& tile : kFwdTiles) {
    if (!is_valid(tile)) return false;
  }
  for (const BwdTile& tile : kBwdTiles) {
    if (!is_valid(tile)) return false;
  }
  return true;
}());

}  // namespace cuflash::register_tiled
