// SPDX-License-Identifier: MIT
// The room's tile tables. A row serves every head_dim and head_dim_v up to its capacity; of the rows with capacity, the
// first whose blocks fit into the shared memory of the GPU is taken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/common/warp.h"

namespace cuflash::cp_async {

// What a block notes about itself, behind the tiles.
inline constexpr size_t kBlockStateBytes = 256;

// Forward: block_m query rows against block_n keys per stage of the pipeline, of which a warp takes step_n at a time. A
// warp owns 16 * m_tiles query rows, or shares them with split - 1 others: then each computes the scores of its part of the
// step's keys and the columns of o of its part of head_dim, and weights pass through shared memory.
struct FwdTile {
  int head_dim;  // capacity
  int block_m;
  int block_n;
  int step_n;
  int m_tiles;
  int split;
  int stages;           // of k and v
  bool q_in_registers;  // else q is read from shared memory for every step
  int min_blocks;       // per SM

  constexpr int warps() const { return split * block_m / (16 * m_tiles); }
  constexpr int threads() const { return kWarpSize * warps(); }
  constexpr size_t q_bytes() const { return size_t{2} * block_m * head_dim; }
  constexpr size_t stage_bytes() const { return size_t{4} * block_n * head_dim; }  // k and v
  // q in registers passes through the memory of the last stage, which is filled after it was read.
  constexpr size_t pair_bytes() const { return split == 1 ? 0 : size_t{2} * 2 * block_m * step_n; }  // weights, twice
  constexpr size_t tile_bytes() const {
    const size_t all_stages = stages * stage_bytes() + pair_bytes();
    if (!q_in_registers) return q_bytes() + all_stages;
    return q_bytes() > stage_bytes() ? all_stages - stage_bytes() + q_bytes() : all_stages;
  }
  constexpr size_t board_bytes() const { return split == 1 ? 0 : size_t{4} * warps() * (2 * 16 * m_tiles + 3); }
  constexpr size_t shared_bytes() const { return tile_bytes() + kBlockStateBytes + board_bytes(); }
  // What a GPU must be able to give one block, that it can hold min_blocks of these: the system keeps 1 KB of each.
  constexpr size_t fitting_bytes() const { return min_blocks * (shared_bytes() + 1024) - 1024; }
};

// clang-format off
inline constexpr std::array kFwdTiles = {
    FwdTile{.head_dim = 32,  .block_m = 128, .block_n = 128, .step_n = 64, .m_tiles = 2, .split = 1, .stages = 2, .q_in_registers = true,  .min_blocks = 2},
    FwdTile{.head_dim = 64,  .block_m = 128, .block_n = 128, .step_n = 64, .m_tiles = 2, .split = 1, .stages = 2, .q_in_registers = true,  .min_blocks = 2},
    FwdTile{.head_dim = 64,  .block_m = 128, .block_n = 64,  .step_n = 64, .m_tiles = 2, .split = 1, .stages = 2, .q_in_registers = true,  .min_blocks = 2},
    FwdTile{.head_dim = 96,  .block_m = 128, .block_n = 64,  .step_n = 32, .m_tiles = 2, .split = 1, .stages = 2, .q_in_registers = false, .min_blocks = 2},
    FwdTile{.head_dim = 96,  .block_m = 128, .block_n = 32,  .step_n = 32, .m_tiles = 2, .split = 1, .stages = 2, .q_in_registers = false, .min_blocks = 2},
    FwdTile{.head_dim = 128, .block_m = 128, .block_n = 64,  .step_n = 32, .m_tiles = 2, .split = 1, .stages = 2, .q_in_registers = false, .min_blocks = 2},
    FwdTile{.head_dim = 128, .block_m = 128, .block_n = 32,  .step_n = 32, .m_tiles = 2, .split = 1, .stages = 2, .q_in_registers = false, .min_blocks = 2},
    FwdTile{.head_dim = 128, .block_m = 128, .block_n = 32,  .step_n = 32, .m_tiles = 2, .split = 1, .stages = 2, .q_in_registers = false, .min_blocks = 1},
    FwdTile{.head_dim = 192, .block_m = 128, .block_n = 32,  .step_n = 32, .m_tiles = 1, .split = 1, .stages = 3, .q_in_registers = true,  .min_blocks = 1},
    FwdTile{.head_dim = 256, .block_m = 128, .block_n = 64,  .step_n = 64, .m_tiles = 2, .split = 2, .stages = 2, .q_in_registers = false, .min_blocks = 1},
    FwdTile{.head_dim = 256, .block_m = 128, .block_n = 32,  .step_n = 32, .m_tiles = 1, .split = 1, .stages = 3, .q_in_registers = true,  .min_blocks = 1},
    FwdTile{.head_dim = 256, .block_m = 128, .block_n = 32,  .step_n = 32, .m_tiles = 1, .split = 1, .stages = 2, .q_in_registers = true,  .min_blocks = 1},
};
// clang-format on

// Of the backward pass: floats of a row of the sums of dq, which lie as fragments have them (SumsOrder::kFragments).
constexpr int32_t dq_pitch(int32_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Backward: a block owns block_n keys and streams block_m query rows per step.
//
// Alone, a warp computes the weights of its keys, `part` queries at a time, and sums both their gradients. By role, one half
// of the warps has p and dv, the other ds and dk, and each warp's partner the same pairs, `part` queries of all steps. Of
// a role, `split` warps share the keys of their gradients, each with its part of head_dim; then weights pass through shared
// memory.
struct BwdTile {
  int head_dim;  // capacity
  int block_n;
  int block_m;
  int warps;
  bool by_role;
  int split;
  int part;              // queries whose weights a warp holds at a time
  int dq_row_warps;      // the warps that share the queries of a step in dq; the others share head_dim
  int stages;            // of q and dout: 2, or 1 and one more barrier per step
  bool kv_in_registers;  // else k and v are read from shared memory for every part
  int min_blocks;        // per SM

  constexpr int threads() const { return kWarpSize * warps; }
  constexpr int role_warps() const { return by_role ? warps / 2 : warps; }
  constexpr int query_warps() const { return by_role ? block_m / part : 1; }  // of a role, with the same keys' weights
  constexpr int weight_keys() const { return block_n / (role_warps() / query_warps()); }
  constexpr int sum_keys() const { return block_n / (role_warps() / split); }
  constexpr int dq_threads() const { return 2 * block_n; }  // of the deterministic kernel: a warp has 16 rows
  constexpr int tile_bytes(int rows) const { return 2 * rows * head_dim; }
  constexpr int weights_bytes() const { return 2 * block_n * block_m; }
  constexpr int operand_bytes() const { return 2 * tile_bytes(block_n) + 2 * stages * tile_bytes(block_m); }
  constexpr size_t dq_shared_bytes() const { return static_cast<size_t>(operand_bytes()); }
  constexpr int state_offset() const { return operand_bytes() + (split > 1 ? stages + 1 : stages) * weights_bytes(); }
  // Statistics of two steps, a mark for each key, and what all threads share about the block and its steps.
  constexpr int state_bytes() const { return 4 * 4 * block_m + 4 * block_n + 640; }
  constexpr size_t shared_bytes() const {
    return static_cast<size_t>(state_offset()) + static_cast<size_t>(state_bytes());
  }
};

// clang-format off
inline constexpr std::array kBwdTiles = {
    BwdTile{.head_dim = 32,  .block_n = 128, .block_m = 64, .warps = 4, .by_role = false, .split = 1, .part = 32, .dq_row_warps = 2, .stages = 2, .kv_in_registers = true,  .min_blocks = 2},
    BwdTile{.head_dim = 64,  .block_n = 128, .block_m = 64, .warps = 4, .by_role = false, .split = 1, .part = 32, .dq_row_warps = 2, .stages = 2, .kv_in_registers = false, .min_blocks = 2},
    BwdTile{.head_dim = 96,  .block_n = 128, .block_m = 64, .warps = 8, .by_role = false, .split = 1, .part = 32, .dq_row_warps = 4, .stages = 2, .kv_in_registers = true,  .min_blocks = 1},
    BwdTile{.head_dim = 96,  .block_n = 64,  .block_m = 64, .warps = 4, .by_role = false, .split = 1, .part = 32, .dq_row_warps = 2, .stages = 2, .kv_in_registers = true,  .min_blocks = 1},
    BwdTile{.head_dim = 128, .block_n = 128, .block_m = 64, .warps = 8, .by_role = true,  .split = 1, .part = 64, .dq_row_warps = 2, .stages = 2, .kv_in_registers = false, .min_blocks = 1},
    BwdTile{.head_dim = 128, .block_n = 128, .block_m = 32, .warps = 8, .by_role = false, .split = 1, .part = 32, .dq_row_warps = 2, .stages = 1, .kv_in_registers = false, .min_blocks = 1},
    BwdTile{.head_dim = 192, .block_n = 64,  .block_m = 64, .warps = 8, .by_role = true,  .split = 4, .part = 32, .dq_row_warps = 2, .stages = 2, .kv_in_registers = false, .min_blocks = 1},
    BwdTile{.head_dim = 192, .block_n = 64,  .block_m = 32, .warps = 8, .by_role = true,  .split = 4, .part = 16, .dq_row_warps = 2, .stages = 2, .kv_in_registers = false, .min_blocks = 1},
    BwdTile{.head_dim = 192, .block_n = 32,  .block_m = 32, .warps = 4, .by_role = true,  .split = 2, .part = 16, .dq_row_warps = 2, .stages = 2, .kv_in_registers = false, .min_blocks = 1},
    BwdTile{.head_dim = 256, .block_n = 64,  .block_m = 64, .warps = 8, .by_role = true,  .split = 4, .part = 32, .dq_row_warps = 2, .stages = 2, .kv_in_registers = false, .min_blocks = 1},
    BwdTile{.head_dim = 256, .block_n = 64,  .block_m = 32, .warps = 8, .by_role = true,  .split = 4, .part = 16, .dq_row_warps = 2, .stages = 2, .kv_in_registers = false, .min_blocks = 1},
    BwdTile{.head_dim = 256, .block_n = 32,  .block_m = 32, .warps = 4, .by_role = true,  .split = 2, .part = 16, .dq_row_warps = 2, .stages = 1, .kv_in_registers = false, .min_blocks = 1},
};
// clang-format on

// What the kernel takes for granted: whole fragments for every warp, and in dq and among warps that share keys, 16 columns
// each of groups that do not cross the pieces of a tile.
constexpr bool is_valid(const BwdTile& t) {
  const int dq_dim_warps = t.warps / t.dq_row_warps;
  const auto shared_by = [&](int warps) {
    const int piece = t.head_dim % 64 == 0 ? 64 : 32;
    return t.head_dim % (16 * warps) == 0 && piece % (16 * warps) == 0;
  };
  const bool has_warps = t.by_role ? t.warps % 2 == 0 && t.role_warps() % t.query_warps() == 0 : t.split == 1;
  return has_warps && t.role_warps() % t.split == 0 && t.weight_keys() % 16 == 0 && t.sum_keys() % 16 == 0 &&
         (t.split > 1 || t.weight_keys() == t.sum_keys()) && t.block_m % 32 == 0 && t.block_m % t.part == 0 &&
         t.part % 16 == 0 && t.block_m % (16 * t.dq_row_warps) == 0 && t.warps % t.dq_row_warps == 0 &&
         shared_by(t.split) && shared_by(dq_dim_warps) && (t.stages == 1 || t.stages == 2) &&
         2 * t.block_m <= t.threads();
}

static_assert([] {
  for (const BwdTile& tile : kBwdTiles) {
    if (!is_valid(tile)) return false;
  }
  return true;
}());

}  // namespace cuflash::cp_async
