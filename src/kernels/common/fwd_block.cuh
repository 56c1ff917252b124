// SPDX-License-Identifier: MIT
// What a block of a forward kernel notes about its query rows, for rooms whose warps own rows of a block.
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/sequence.h"
#include "kernels/common/tile_coord.h"

namespace cuflash {

// Which keys the rows of a warp see, counted from the first key of the block on.
struct WarpKeys {
  Range any;  // seen by some row
  Range all;  // seen by every row

  __device__ static WarpKeys of(const Attention& a, const Sequence& s, const Range& rows, int32_t origin) {
    if (rows.empty()) return {};
    const Range first = visible_keys(a, s, rows.begin);
    const Range last = visible_keys(a, s, rows.end - 1);
    return {{first.begin - origin, last.end - origin}, {last.begin - origin, first.end - origin}};
  }
};

// It lies in shared memory: the main loop needs it at the edges of the mask only, and has no registers for it.
template <int kWarps>
struct FwdBlock {
  TileCoord at;
  Sequence s;
  Range rows;
  Range keys;  // that some row sees
  WarpKeys seen[kWarps];
};

}  // namespace cuflash
