// SPDX-License-Identifier: MIT
// The plans of rooms whose kernels own blocks of rows of one side: the tile row that fits the GPU, and the grid.
#pragma once

#include "kernels/common/sequence.h"
#include "kernels/common/tile_coord.h"
#include "kernels/common/tile_table.h"

namespace cuflash {

// Forward: blocks of block_m query rows.
template <const auto& kTable>
Plan plan_forward_blocks(const ForwardProblem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  const auto* tile = tile_on<kTable>(a, device);
  return {
      .head_dim = tile->head_dim,
      .block_m = tile->block_m,
      .block_n = tile->block_n,
      .tile_row = static_cast<int32_t>(tile - kTable.data()),
      .query_blocks = num_tiles(a.batch, a.num_heads, ceil_div(a.seqlen_q, tile->block_m))};
}

// Backward: blocks of `own` rows of either side, which step over `step` rows of the other one.
template <const auto& kTable, class Tile>
Plan plan_backward_blocks(const Attention& a, const Tile* tile, int32_t own, int32_t step, size_t workspace_bytes) {
  return {
      .workspace_bytes = workspace_bytes,
      .head_dim = tile->head_dim,
      .block_m = step,
      .block_n = own,
      .tile_row = static_cast<int32_t>(tile - kTable.data()),
      .query_blocks = num_tiles(a.batch, a.num_heads, ceil_div(a.seqlen_q, own)),
      .key_blocks = num_tiles(a.batch, a.num_heads_k, ceil_div(a.seqlen_k, own))};
}

}  // namespace cuflash
