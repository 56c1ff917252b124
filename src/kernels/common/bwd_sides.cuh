// SPDX-License-Identifier: MIT
// For backward kernels that are the same from both sides: a block owns keys and streams query rows, or the other way round.
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/online_softmax.h"

namespace cuflash {

enum class Side { kKeys, kQueries };

// The streamed tiles of a block in order: all steps of one query head, then of the next one of the group.
struct StepCursor {
  int32_t head;
  int32_t left;   // rows of this head, from this tile on
  int32_t begin;  // first row of the tile

  __device__ StepCursor next(const Range& steps, int32_t size) const {
    if (left > size) return {head, left - size, begin + size};
    return {head + 1, steps.end - steps.begin, steps.begin};
  }
};

// What the weights of a query row need. A row that saw nothing (lse = -inf) has weights of 0, whatever else it holds.
struct RowStatistics {
  float lse;
  float delta;

  __device__ bool saw_nothing() const { return lse == kNegativeInfinity<float>; }
};

}  // namespace cuflash
