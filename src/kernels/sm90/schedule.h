// SPDX-License-Identifier: MIT
// Which tiles a block computes, one after the other: one block per SM stays for all of them, and nothing but its number
// says what is its own. Tiles of one head are neighbours, so that blocks at work together read few heads' keys.
#pragma once

#include "kernels/common/tile_coord.h"

namespace cuflash::sm90 {

struct Schedule {
  int32_t num_heads;
  int32_t blocks_per_head;
  int64_t tiles;
  bool folded;  // the mask gives tiles different lengths

  CUFLASH_HD static Schedule of(const Attention& a, int block_m) {
    const int32_t blocks = ceil_div(a.seqlen_q, block_m);
    return {a.num_heads, blocks, num_tiles(a.batch, a.num_heads, blocks), masks_pairs(a)};
  }

  // The number of the block's tile in this turn; not below `tiles` when there is none left. Folded, a block takes pairs.
  CUFLASH_HD int64_t tile(int64_t turn, int32_t block, int32_t blocks) const {
    if (!folded) return turn * blocks + block;
    return (turn / 2 * blocks + block) * 2 + turn % 2;
  }

  // Folded, the order in a head is last, first, last but one, second, ...: with a causal mask a long tile and the short one
  // that makes all pairs equally long, and longer tiles first.
  CUFLASH_HD TileCoord at(int64_t tile) const {
    TileCoord at = tile_coord(tile, num_heads, blocks_per_head);
    if (folded) at.block = at.block % 2 == 0 ? blocks_per_head - 1 - at.block / 2 : at.block / 2;
    return at;
  }
};

}  // namespace cuflash::sm90
