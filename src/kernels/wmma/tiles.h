// SPDX-License-Identifier: MIT
// The room's tile tables. A row serves every head_dim and head_dim_v up to its capacity; of the rows with capacity, the
// first that fits into the shared memory of the GPU is taken. Tiles are cut into fragments of 16 x 16 elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/common/warp.h"

namespace cuflash::wmma {

inline constexpr int kSide = 16;    // rows and columns of a fragment
inline constexpr int kPadding = 8;  // 16-bit elements behind a row: neighbouring rows are 16 bytes apart in the banks

// A warp's own fp32 fragment in shared memory, where its rows can be seen. Rows are 20 banks apart: 16 bytes of eight
// rows meet every bank once.
inline constexpr int kScratchPitch = 20;
inline constexpr int kScratchFloats = kSide * kScratchPitch;

// Of the backward pass: floats of a row of the sums of dq, of which four neighbours are added at once.
constexpr int32_t dq_pitch(int32_t head_dim) { return (head_dim + 3) / 4 * 4; }

// Forward: block_m query rows against block_n keys per copy, of which a warp takes step_n at a time. A warp owns
// row_fragments * 16 query rows.
struct FwdTile {
  int head_dim;  // capacity
  int block_m;
  int block_n;
  int step_n;
  int row_fragments;
  bool v_with_k;   // v waits in registers beside k, else it is read when k has left them
  int min_blocks;  // per SM, for the register allocator

  constexpr int warp_rows() const { return kSide * row_fragments; }
  constexpr int warps() const { return block_m / warp_rows(); }
  constexpr int threads() const { return warps() * kWarpSize; }
  constexpr int pitch() const { return head_dim + kPadding; }
  constexpr int pitch_p() const { return step_n + kPadding; }
  constexpr int q_elements() const { return block_m * pitch(); }
  constexpr int k_elements() const { return block_n * pitch(); }  // v as well
  // p of a warp's rows, or its scratch fragment.
  constexpr size_t warp_bytes() const {
    return std::max(size_t{2} * warp_rows() * pitch_p(), sizeof(float) * kScratchFloats);
  }
  constexpr size_t shared_bytes() const {
    return size_t{2} * (q_elements() + 2 * k_elements()) + warps() * warp_bytes() + block_bytes();
  }
  constexpr size_t block_bytes() const { return 128 + 16 * warps(); }  // what the block works on
};

// Backward: a block owns block_own rows of its side (keys, or queries in the deterministic dq kernel) and streams
// block_step rows of the other side.
struct BwdTile {
  int head_dim;  // capacity
  int block_own;
  int block_step;
  int warps;
  int min_blocks;  // per SM

  constexpr int threads() const { return warps * kWarpSize; }
  constexpr int pitch() const { return head_dim + kPadding; }
  constexpr int pitch_w() const { return block_step + kPadding; }  // of p and ds, [own][step]
  constexpr int own_elements() const { return block_own * pitch(); }
  constexpr int step_elements() const { return block_step * pitch(); }
  constexpr int w_elements() const { return block_own * pitch_w(); }
  constexpr int statistics() const { return std::max(block_own, block_step); }  // query rows, two floats each
  constexpr size_t shared_bytes() const {
    return size_t{4} * (own_elements() + step_elements() + w_elements()) +
           sizeof(float) * (warps * kScratchFloats + 2 * statistics());
  }
};

// clang-format off
inline constexpr std::array kFwdTiles = {
    FwdTile{.head_dim = 32,  .block_m = 128, .block_n = 64, .step_n = 32, .row_fragments = 2, .v_with_k = true,  .min_blocks = 3},  //  30 KB
    FwdTile{.head_dim = 64,  .block_m = 128, .block_n = 64, .step_n = 32, .row_fragments = 2, .v_with_k = true,  .min_blocks = 2},  //  46 KB
    FwdTile{.head_dim = 128, .block_m = 128, .block_n = 64, .step_n = 32, .row_fragments = 1, .v_with_k = false, .min_blocks = 2},  //  78 KB
    FwdTile{.head_dim = 128, .block_m = 128, .block_n = 32, .step_n = 32, .row_fragments = 1, .v_with_k = true,  .min_blocks = 1},  //  61 KB
    FwdTile{.head_dim = 256, .block_m = 128, .block_n = 64, .step_n = 32, .row_fragments = 1, .v_with_k = true,  .min_blocks = 1},  // 142 KB
    FwdTile{.head_dim = 256, .block_m = 64,  .block_n = 32, .step_n = 32, .row_fragments = 1, .v_with_k = true,  .min_blocks = 1},  //  71 KB
    FwdTile{.head_dim = 256, .block_m = 64,  .block_n = 16, .step_n = 16, .row_fragments = 1, .v_with_k = true,  .min_blocks = 1},  //  54 KB
};
inline constexpr std::array kBwdTiles = {
    BwdTile{.head_dim = 32,  .block_own = 64, .block_step = 64, .warps = 4, .min_blocks = 2},  //  43.5 KB
    BwdTile{.head_dim = 64,  .block_own = 64, .block_step = 64, .warps = 4, .min_blocks = 2},  //  59.5 KB
    BwdTile{.head_dim = 128, .block_own = 64, .block_step = 64, .warps = 4, .min_blocks = 2},  //  91.5 KB
    BwdTile{.head_dim = 128, .block_own = 64, .block_step = 16, .warps = 4, .min_blocks = 2},  //  54 KB
    BwdTile{.head_dim = 256, .block_own = 64, .block_step = 32, .warps = 8, .min_blocks = 1},  // 119.5 KB
    BwdTile{.head_dim = 256, .block_own = 32, .block_step = 32, .warps = 4, .min_blocks = 1},  //  76 KB
    BwdTile{.head_dim = 256, .block_own = 32, .block_step = 16, .warps = 4, .min_blocks = 1},  //  57.8 KB
};
// clang-format on

// How the fragments of a tile of rows x cols elements are dealt to warps: each takes a block of rows x cols fragments.
struct WarpBlock {
  int rows;  // fragments
  int cols;
  int across;  // warps side by side
  int warps;   // that have a block

  constexpr int first_row(int warp) const { return warp / across * rows * kSide; }
  constexpr int first_col(int warp) const { return warp % across * cols * kSide; }
};

// The smallest blocks that give every fragment to one of the warps. Of equal ones the squarest: it loads the fewest
// operands; then the one with more rows.
constexpr WarpBlock deal(int tile_rows, int tile_cols, int warps) {
  const int rows = tile_rows / kSide;
  const int cols = tile_cols / kSide;
  WarpBlock best{rows, cols, 1, 1};
  for (int r = rows; r > 0; --r) {
    for (int c = cols; c > 0; --c) {
      if (rows % r != 0 || cols % c != 0 || rows / r * (cols / c) > warps) continue;
      const int size = r * c - best.rows * best.cols;
      if (size < 0 || (size == 0 && r + c < best.rows + best.cols)) best = {r, c, cols / c, rows / r * (cols / c)};
    }
  }
  return best;
}

constexpr bool is_valid(const FwdTile& t) {
  const bool fragments = t.step_n % kSide == 0 && t.head_dim % kSide == 0 && t.block_m % t.warp_rows() == 0;
  const int copied_rows = t.threads() * 8 / t.head_dim;  // at a time, 8 elements a thread
  return fragments && t.block_n % t.step_n == 0 && t.block_m % copied_rows == 0 && t.block_n % copied_rows == 0 &&
         t.warp_bytes() % 32 == 0;
}

constexpr bool is_valid(const BwdTile& t) {
  const int copied_rows = t.threads() * 8 / t.head_dim;
  return t.block_own % kSide == 0 && t.block_step % kSide == 0 && t.head_dim % kSide == 0 &&
         t.block_own % copied_rows == 0 && t.block_step % copied_rows == 0 && t.block_own % t.warps == 0 &&
         deal(t.block_own, t.head_dim, t.warps).warps == t.warps;
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

}  // namespace cuflash::wmma
