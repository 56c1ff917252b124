// SPDX-License-Identifier: MIT
// Where the threads of a block stand in its tiles. Plain index arithmetic, so that host tests count bank conflicts of
// every access and see that every element has one owner.
#pragma once

#include "kernels/common/host_device.h"
#include "kernels/register_tiled/tiles.h"

namespace cuflash::register_tiled {

// A warp as a grid of 32 / kLanes row groups by kLanes lanes. Neighbours in the warp differ in the row first: lanes i and
// i ^ 1 share a column, lanes i and i ^ 2 a row. With 32 lanes there is one row, which all share.
struct LanePosition {
  int row;
  int col;
};

template <int kLanes>
CUFLASH_HD LanePosition lane_grid(int lane) {
  if constexpr (kLanes == kWarpSize) return {0, lane};
  return {lane % 2 + lane / (2 * kLanes) * 2, lane / 2 % kLanes};
}

// Where a thread's rows and columns lie in the block's tile.
template <int kRow>
struct FwdPosition {
  static constexpr FwdTile kTile = kFwdTiles[kRow];
  static constexpr int kRowGroups = kWarpSize / kTile.lanes;  // per warp
  int row_quad;                                               // of the first four rows
  int lane;

  CUFLASH_HD explicit FwdPosition(int thread) {
    const LanePosition at = lane_grid<kTile.lanes>(thread % kWarpSize);
    row_quad = thread / kWarpSize * (kRowGroups * kTile.rows / 4) + at.row;
    lane = at.col;
  }
  CUFLASH_HD int row(int i) const { return 4 * (row_quad + i / 4 * kRowGroups) + i % 4; }
  CUFLASH_HD int key(int j) const { return lane + j * kTile.lanes; }
  CUFLASH_HD int dim(int j) const { return 4 * (lane + j / 4 * kTile.lanes) + j % 4; }
  // Where four weights of a key lie in p^T. For odd keys rows are exchanged with those 16 further on: lanes that store
  // neighbouring keys meet different banks. `parity` is that of the key, given apart where it is a constant; since lanes are
  // even in number, that of key(j) is the lane's.
  CUFLASH_HD int p_quad(int i, int key, int parity) const { return key * kTile.block_m + (row(4 * i) ^ parity * 16); }
};

// Where a thread's sums lie: scores and weights on a grid of 4 x 8 lanes, gradients of own rows on 32 / kSumLanes x
// kSumLanes, dq of streamed rows on 4-row groups.
template <int kRow>
struct BwdPosition {
  static constexpr BwdTile kTile = kBwdTiles[kRow];
  static constexpr int kScoreLanes = 8;
  static constexpr int kScoreRows = kTile.warp_rows() / 4;
  static constexpr int kScoreCols = kTile.block_step / kScoreLanes;
  static constexpr int kSumLanes = kTile.head_dim >= 128 ? 16 : 8;
  static constexpr int kSumRows = kTile.warp_rows() * kSumLanes / kWarpSize;
  static constexpr int kSumDims = kTile.head_dim / kSumLanes;
  static constexpr int kStepLanes = kWarpSize / (kTile.step_rows() / 4);
  static constexpr int kStepDims = kTile.head_dim / kStepLanes;

  int warp;
  LanePosition score;
  LanePosition sum;
  LanePosition step;

  CUFLASH_HD explicit BwdPosition(int thread) {
    const int lane = thread % kWarpSize;
    warp = thread / kWarpSize;
    score = lane_grid<kScoreLanes>(lane);
    sum = lane_grid<kSumLanes>(lane);
    step = lane_grid<kStepLanes>(lane);
  }
  CUFLASH_HD int score_row(int i) const { return warp * kTile.warp_rows() + score.row + i * 4; }
  CUFLASH_HD int score_col(int j) const { return score.col + j * kScoreLanes; }
  CUFLASH_HD int sum_row(int i) const { return warp * kTile.warp_rows() + sum.row + i * (kWarpSize / kSumLanes); }
  CUFLASH_HD int sum_dim(int j) const { return 4 * (sum.col + j / 4 * kSumLanes) + j % 4; }
  CUFLASH_HD int step_row(int i) const { return warp * kTile.step_rows() + 4 * step.row + i; }
  CUFLASH_HD int step_dim(int j) const { return 4 * (step.col + j / 4 * kStepLanes) + j % 4; }
};

}  // namespace cuflash::register_tiled
