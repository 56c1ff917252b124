// SPDX-License-Identifier: MIT
// The room's tile table. A row serves every head_dim and head_dim_v up to its capacity.
#pragma once

#include <array>
#include <cstddef>

namespace cuflash::sm90 {

inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kGroupRows = 64;      // that a product of a warpgroup has: query rows

// What a block notes about itself and its barriers, behind the tiles.
inline constexpr size_t kBlockStateBytes = 2048;

// A block has a warpgroup that loads and block_m / 64 that compute, 64 query rows each.
struct FwdTile {
  int head_dim;  // capacity
  int block_m;
  int block_n;
  int stages;              // of k, and of v
  int o_columns;           // that a warpgroup stages at a time to store o; 0: from registers
  int early_blocks;        // of 8 keys: whose weights are computed before the last p v is awaited, the others behind
  bool takes_turns;        // warpgroups issue products one after the other, so that softmax runs under those of another
  int loader_registers;    // per thread; the sum over warpgroups must not be above what the block starts with
  int consumer_registers;  // per thread

  constexpr int groups() const { return block_m / kGroupRows; }
  constexpr int threads() const { return kGroupThreads * (1 + groups()); }
  constexpr int q_bytes() const { return 2 * block_m * head_dim; }
  constexpr int kv_bytes() const { return 2 * block_n * head_dim; }     // of a stage of k, or of v
  constexpr int o_bytes() const { return 2 * kGroupRows * o_columns; }  // of a warpgroup

  // Where things lie in shared memory.
  constexpr int q_offset() const { return 0; }
  constexpr int k_offset() const { return q_offset() + q_bytes(); }
  constexpr int v_offset() const { return k_offset() + stages * kv_bytes(); }
  constexpr int o_offset() const { return v_offset() + stages * kv_bytes(); }
  constexpr int state_offset() const { return o_offset() + groups() * o_bytes(); }
  constexpr size_t shared_bytes() const { return static_cast<size_t>(state_offset()) + kBlockStateBytes; }
};

// clang-format off
inline constexpr std::array kFwdTiles = {
    FwdTile{.head_dim = 64,  .block_m = 192, .block_n = 128, .stages = 3, .o_columns = 64,  .early_blocks = 0, .takes_turns = true,  .loader_registers = 32, .consumer_registers = 160},
    FwdTile{.head_dim = 128, .block_m = 128, .block_n = 128, .stages = 2, .o_columns = 128, .early_blocks = 4, .takes_turns = true,  .loader_registers = 24, .consumer_registers = 240},
    FwdTile{.head_dim = 256, .block_m = 128, .block_n = 64,  .stages = 2, .o_columns = 128, .early_blocks = 6, .takes_turns = true,  .loader_registers = 24, .consumer_registers = 240},
};
// clang-format on

// What the kernel and the hardware take for granted.
constexpr bool is_valid(const FwdTile& t) {
  constexpr int kRegisters = 65536;
  const int at_entry = kRegisters / t.threads() / 8 * 8;  // what a block of one per SM starts with
  const int in_all = t.loader_registers + t.groups() * t.consumer_registers;
  return t.head_dim % 64 == 0 && t.block_m % kGroupRows == 0 && t.groups() >= 1 && t.groups() <= 3 &&
         t.block_n % 16 == 0 && t.block_n <= 256 && t.stages >= 2 && t.o_columns % 64 == 0 &&
         (t.o_columns == 0 || t.head_dim % t.o_columns == 0) && t.early_blocks <= t.block_n / 8 &&
         t.loader_registers % 8 == 0 && t.consumer_registers % 8 == 0 && in_all <= (1 + t.groups()) * at_entry &&
         t.shared_bytes() <= 227 * 1024;
}

// Backward: a block owns block_n keys and streams block_m query rows per step. Of 128 keys each of its two warpgroups that
// compute has 64; of 64 both have all, and split the work: one computes p and dv, the other ds and dk.
struct BwdTile {
  int head_dim;  // capacity
  int block_m;
  int q_stages;
  int dout_stages;
  int step_stages;         // of what is known of a step
  int loader_registers;    // per thread; the sum over warpgroups must not be above what the block starts with
  int consumer_registers;  // per thread
  int block_n = kGroups * kGroupRows;

  static constexpr int kGroups = 2;
  static constexpr int kDqColumns = 64;  // of 64 rows: what a warpgroup computes and stages of dq at a time
  static constexpr int threads() { return kGroupThreads * (1 + kGroups); }
  constexpr bool splits_roles() const { return block_n == kGroupRows; }
  // With the keys split, warpgroups are half a step apart and read what is a step old.
  constexpr int ds_stages() const { return splits_roles() ? 2 : 3; }
  constexpr int dq_parts() const { return block_m * head_dim / (kGroups * kGroupRows * kDqColumns); }  // of a warpgroup
  constexpr int kv_bytes() const { return 2 * block_n * head_dim; }                                    // of k, or of v
  constexpr int rows_bytes() const { return 2 * block_m * head_dim; }                   // of a stage of q, or of dout
  constexpr int ds_bytes() const { return 2 * block_n * block_m; }                      // of a stage
  constexpr int p_bytes() const { return splits_roles() ? 4 * block_n * block_m : 0; }  // from warpgroup to warpgroup
  static constexpr int dq_bytes() { return 4 * kGroupRows * kDqColumns; }               // of a warpgroup's stage
  constexpr int dq_floats() const { return block_m * head_dim; }                        // of the sums of a step's rows

  // Where things lie in shared memory.
  constexpr int k_offset() const { return 0; }
  constexpr int v_offset() const { return k_offset() + kv_bytes(); }
  constexpr int q_offset() const { return v_offset() + kv_bytes(); }
  constexpr int dout_offset() const { return q_offset() + q_stages * rows_bytes(); }
  constexpr int ds_offset() const { return dout_offset() + dout_stages * rows_bytes(); }
  constexpr int dq_offset() const { return ds_offset() + ds_stages() * ds_bytes(); }
  constexpr int state_offset() const { return dq_offset() + kGroups * dq_bytes(); }
  constexpr int state_bytes() const { return step_stages * (16 * block_m / 2 + 64) + 768 + p_bytes(); }
  constexpr size_t shared_bytes() const {
    return static_cast<size_t>(state_offset()) + static_cast<size_t>(state_bytes());
  }
};

// clang-format off
inline constexpr std::array kBwdTiles = {
    BwdTile{.head_dim = 64,  .block_m = 128, .q_stages = 2, .dout_stages = 2, .step_stages = 2, .loader_registers = 24, .consumer_registers = 240},
    BwdTile{.head_dim = 128, .block_m = 64,  .q_stages = 3, .dout_stages = 2, .step_stages = 4, .loader_registers = 24, .consumer_registers = 240},
    BwdTile{.head_dim = 256, .block_m = 64,  .q_stages = 2, .dout_stages = 1, .step_stages = 4, .loader_registers = 24, .consumer_registers = 240, .block_n = 64},
};
// clang-format on

constexpr bool is_valid(const BwdTile& t) {
  constexpr int kRegisters = 65536;
  const int at_entry = kRegisters / t.threads() / 8 * 8;
  const int in_all = t.loader_registers + t.kGroups * t.consumer_registers;
  const bool keys_split = t.block_n == t.kGroups * kGroupRows && (t.head_dim == 64 || t.head_dim == 128) &&
                          (t.block_m == 64 || t.block_m == 128) && t.dq_parts() == 1 && t.dout_stages >= 2;
  const bool roles_split = t.splits_roles() && t.head_dim == 256 && t.block_m == 64 && t.dout_stages >= 1;
  return (keys_split || roles_split) && t.q_stages >= 2 && t.step_stages >= 2 && in_all <= (1 + t.kGroups) * at_entry &&
         t.shared_bytes() <= 227 * 1024;
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

}  // namespace cuflash::sm90
