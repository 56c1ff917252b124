// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/common/sequence.h"
#include "kernels/common/tile_coord.h"
#include "kernels/sm90/tiles.h"

namespace cuflash::sm90 {

// Where sums of dq lie: a tile of block_m rows for every block of query rows of a head, each in the order in which threads
// hold it, so that a warpgroup's part is one piece. Packed entries begin at new tiles.
struct DqTiles {
  int64_t per_head;
  int64_t heads;

  CUFLASH_HD static DqTiles of(const Attention& a, int block_m) {
    if (a.cu_seqlens_q != nullptr) return {a.total_q / block_m + a.batch, a.num_heads};
    return {ceil_div(a.seqlen_q, block_m), int64_t{a.batch} * a.num_heads};
  }
  CUFLASH_HD int64_t count() const { return per_head * heads; }
  // Of an entry's first rows in a head.
  CUFLASH_HD int64_t first(const Attention& a, const Rows& rows, int32_t entry, int32_t head, int block_m) const {
    if (a.cu_seqlens_q != nullptr) return head * per_head + rows.first / block_m + entry;
    return (int64_t{entry} * a.num_heads + head) * per_head;
  }
};

// Each warpgroup's part of a tile has a counter. Whoever comes first puts its sums there, so that nobody has to clear them, and
// says so by kDqPut; others add to them. Where dq has to be repeatable, it is how many have added.
inline constexpr uint32_t kDqPut = uint32_t{1} << 31;

// Where quad i of a tile lies: elements (row, column), (row, column + 1), (row + 8, column), (row + 8, column + 1). A warpgroup
// has 64 rows and columns: its own rows of tiles of 128, or its own columns.
struct DqPlace {
  int row;
  int column;
};

CUFLASH_HD constexpr DqPlace dq_place(int block_m, int i) {
  constexpr int kBlocks = 8;  // of 8 columns
  const int thread = i % kGroupThreads;
  const int group = i / (kBlocks * kGroupThreads);
  const int row = thread / 32 * 16 + thread % 32 / 4;
  const int column = i / kGroupThreads % kBlocks * 8 + i % 4 * 2;
  if (block_m == kGroupRows) return {row, group * 64 + column};
  return {group * kGroupRows + row, column};
}

}  // namespace cuflash::sm90
