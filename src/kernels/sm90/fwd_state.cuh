// SPDX-License-Identifier: MIT
// What the threads of a block share: the tiles' places in shared memory, the barriers, and what is computed.
//
// Every buffer has two barriers: `full`, on which the loader announces bytes and consumers wait, and `empty`, on which every
// consumer warp arrives when its products have read the buffer, and the loader waits. Uses of a ring of buffers are counted
// alike on both sides (RingPosition), in the order in which the consumers need them:
//
//   task(t) q(t) k(t, n - 1) | k(t, n - 2) v(t, n - 1) | ... | k(t, 0) v(t, 1) | v(t, 0) task(t + 1) q(t + 1) ...
//
// Neither side skips a use, so that no wait is for something that comes behind it.
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/tile_coord.h"
#include "kernels/sm90/ring.cuh"
#include "kernels/sm90/schedule.h"
#include "kernels/sm90/swizzle.h"
#include "kernels/sm90/tiles.h"

namespace cuflash::sm90 {

// Barriers of threads, by number; 0 is __syncthreads().
enum NamedBarrier {
  kTurn = 1,   // + warpgroup: it may issue products
  kGroup = 4,  // + warpgroup: its 128 threads
};

// A tile of query rows, as the loader hands it on.
struct FwdTask {
  TileCoord at;
  Sequence s;
  Range rows;
  Range keys;          // that some row sees
  int32_t key_blocks;  // 0: no row sees a key; negative: there is no tile left
};

template <int kRow>
struct FwdState {
  static constexpr FwdTile kTile = kFwdTiles[kRow];
  static constexpr int kTasks = 2;  // this one until o is stored, and the next

  RingBarriers<kTasks> task;
  RingBarriers<1> q;
  RingBarriers<kTile.stages> k;
  RingBarriers<kTile.stages> v;
  FwdTask tasks[kTasks];
  SortedEntries entries;

  __device__ void init() {
    constexpr int kConsumerWarps = 4 * kTile.groups();
    task.init(kConsumerWarps);
    q.init(kConsumerWarps);
    k.init(kConsumerWarps);
    v.init(kConsumerWarps);
    publish_barriers();
  }
};

}  // namespace cuflash::sm90
