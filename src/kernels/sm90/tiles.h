// SPDX-License-Identifier: MIT
// The room's tile table. A row serves every head_dim and head_dim_v up to its capacity.
#pragma once

#include <array>
#include <cstddef>

namespace cuflash::sm90 {

inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kGroupRows = 64;      // that a product of a warpgroup has: query rows

// What a block notes about itself and its barriers, behind the tiles.
inline constexpr size_t kBlockStateBytes = 1024;

// A block has a warpgroup that loads and block_m / 64 that compute, 64 query rows each.
struct FwdTile {
  int head_dim;  // capacity
  int block_m;
  int block_n;
  int stages;              // of k, and of v
  int o_columns;           // that a warpgroup stages at a time to store o; 0: from registers
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
    FwdTile{.head_dim = 64,  .block_m = 192, .block_n = 128, .stages = 3, .o_columns = 64,  .takes_turns = true,  .loader_registers = 32, .consumer_registers = 160},
    FwdTile{.head_dim = 128, .block_m = 128, .block_n = 128, .stages = 2, .o_columns = 128, .takes_turns = true,  .loader_registers = 24, .consumer_registers = 240},
    FwdTile{.head_dim = 256, .block_m = 128, .block_n = 64,  .stages = 2, .o_columns = 128, .takes_turns = true,  .loader_registers = 24, .consumer_registers = 240},
};
// clang-format on

// What the kernel and the hardware take for granted.
constexpr bool is_valid(const FwdTile& t) {
  constexpr int kRegisters = 65536;
  const int at_entry = kRegisters / t.threads() / 8 * 8;  // what a block of one per SM starts with
  const int in_all = t.loader_registers + t.groups() * t.consumer_registers;
  return t.head_dim % 64 == 0 && t.block_m % kGroupRows == 0 && t.groups() >= 1 && t.groups() <= 3 &&
         t.block_n % 16 == 0 && t.block_n <= 256 && t.stages >= 2 && t.o_columns % 64 == 0 &&
         (t.o_columns == 0 || t.head_dim % t.o_columns == 0) && t.loader_registers % 8 == 0 &&
         t.consumer_registers % 8 == 0 && in_all <= (1 + t.groups()) * at_entry && t.shared_bytes() <= 227 * 1024;
}

static_assert([] {
  for (const FwdTile& tile : kFwdTiles) {
    if (!is_valid(tile)) return false;
  }
  return true;
}());

}  // namespace cuflash::sm90
