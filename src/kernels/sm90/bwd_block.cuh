// SPDX-License-Identifier: MIT
// What the threads of a block of the backward pass share: the tiles' places in shared memory, the barriers, and what is
// computed.
//
// Buffers pass from who fills to who reads them through rings (ring.cuh), in one order on both sides:
//
//   task(t) | q dout (0) v k | step(0) | q dout (1) | step(1) | ... | task(t + 1) ...
//
// The loader's first warp fills all but steps. Its second warp fills steps: what a step is, and the statistics of its rows.
// It also clears rows behind the last one in use, when they have arrived and before it hands on the step: so whoever has
// seen the step full needs no look at lengths.
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/tile_coord.h"
#include "kernels/sm90/bwd_weights.cuh"
#include "kernels/sm90/dq_tiles.h"
#include "kernels/sm90/ring.cuh"
#include "kernels/sm90/swizzle.h"
#include "kernels/sm90/tensor_map.h"
#include "kernels/sm90/tiles.h"

namespace cuflash::sm90 {

// Barriers of threads, by number; 0 is __syncthreads().
enum BwdNamedBarrier {
  kBwdTurn = 1,   // + warpgroup: it may compute weights
  kDqStaged = 3,  // + warpgroup: dq of a step lies in its stage
  kDqTaken = 5,   // + warpgroup: the stage is free
  // Where warpgroups split roles:
  kPGiven = 1,      // p of a step can be read
  kDsGiven = 2,     // ds of a step can be read, by the warpgroup of p
  kDsWritten = 7,   // the same, by that of ds itself
  kMarksGiven = 8,  // a tile's dv is stored, and its marks can be read
};

// A tile of keys, as the loader hands it on.
struct BwdTask {
  TileCoord at;  // the head is one of keys
  Sequence s;
  Range own;
  int32_t first_block;  // of query rows that see a key
  int32_t blocks;       // of each head; 0: no row sees a key
  int32_t start;        // which of them comes first: behind the last one the first one follows
  int32_t steps;        // of all heads of the group; negative: there is no tile left
};

// Where a walk over a tile's steps is.
struct BwdWalk {
  int32_t block;  // of query rows
  int32_t head;

  __device__ __forceinline__ void advance(const BwdTask& task) {
    if (++block == task.first_block + task.blocks) block = task.first_block;
    if (block == task.start) ++head;
  }
};

// Query rows of one head against the keys of the block.
template <int kBlockM>
struct BwdStep {
  BwdStatistics<kBlockM> statistics;
  TileMask mask;      // rows are keys, columns are query rows
  int32_t key_count;  // of the block: keys behind them do not exist
  bool edge;          // the mask, or an end, hides something
  bool unusual;       // a row's lse is
  float slope;        // of ALiBi
  float diagonal;     // distance of ALiBi between the first query row and the first key
  int32_t dq_turn;    // if dq has to be repeatable: how many tiles of keys are added before
  int64_t dq_tile;
};

// Beyond this, rounding lse to fp32 can make weights visibly larger than 1; lse = -inf is a row that saw nothing.
inline constexpr float kUsualLse = 4096.0f;

template <int kRow>
struct BwdBlock {
  static constexpr BwdTile kTile = kBwdTiles[kRow];
  static constexpr int kTasks = 2;
  static constexpr int kConsumerWarps = 4 * kTile.kGroups;
  static constexpr int kStoreWarps = kTile.kGroups;
  using Step = BwdStep<kTile.block_m>;

  alignas(16) Step steps[kTile.step_stages];
  RingBarriers<kTasks> task;
  RingBarriers<1> k;
  RingBarriers<1> v;
  RingBarriers<kTile.q_stages> q;
  RingBarriers<kTile.dout_stages> dout;
  RingBarriers<kTile.step_stages> step;
  BwdTask tasks[kTasks];
  uint32_t marks[4];  // where roles are split: keys of a warp whose dv is not finite
  alignas(16) float4 p[kTile.splits_roles() ? kTile.p_bytes() / 16 : 1];  // as threads hold it

  __device__ void init() {
    task.init(kConsumerWarps + kStoreWarps + 1);
    k.init(kConsumerWarps);
    v.init(kConsumerWarps);
    q.init(kConsumerWarps);
    dout.init(kConsumerWarps);
    step.init(kConsumerWarps + kStoreWarps, kWarpSize);
    publish_barriers();
  }
};

// Where a warp is in the ring of tasks: each of them takes all.
template <int kRow>
struct BwdTaskReader {
  static constexpr int kTasks = BwdBlock<kRow>::kTasks;
  BwdBlock<kRow>& block;
  uint32_t count = 0;

  // The task is valid until done() is called.
  __device__ __forceinline__ const BwdTask& take() const {
    const RingPosition<kTasks> at = ring_position<kTasks>(count);
    block.task.wait_full(at);
    return block.tasks[at.stage];
  }
  __device__ __forceinline__ void done() {
    __syncwarp();
    block.task.release(ring_position<kTasks>(count));
    ++count;
  }
};

}  // namespace cuflash::sm90
