// SPDX-License-Identifier: MIT
// Rings of buffers between who fills and who reads them. Every buffer has two barriers: `full`, on which the one who fills
// announces bytes or arrives, and `empty`, on which readers arrive.
#pragma once

#include "kernels/common/warp.h"
#include "kernels/sm90/ptx.cuh"

namespace cuflash::sm90 {

// Buffers of a ring in turn.
template <int kStages>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;  // of the phase in which the buffer becomes full

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Of use number n: where one count does for several rings. A block takes hours to pass 2^32 uses.
template <int kStages>
__device__ __forceinline__ RingPosition<kStages> ring_position(uint32_t n) {
  return {static_cast<int>(n % kStages), n / kStages % 2};
}

template <int kStages>
struct RingBarriers {
  uint64_t full[kStages];
  uint64_t empty[kStages];

  __device__ void init(int consumers, int producers = 1) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(shared_address(&full[i]), producers);
      init_barrier(shared_address(&empty[i]), consumers);
    }
  }
  __device__ __forceinline__ uint32_t full_at(const RingPosition<kStages>& at) const {
    return shared_address(&full[at.stage]);
  }
  // Consumers: the buffer holds what was announced.
  __device__ __forceinline__ void wait_full(const RingPosition<kStages>& at) const {
    wait_phase(full_at(at), at.parity);
  }
  __device__ __forceinline__ bool is_full(const RingPosition<kStages>& at) const {
    return phase_has_ended(full_at(at), at.parity);
  }
  // The loader: nobody reads the buffer any more.
  __device__ __forceinline__ void wait_empty(const RingPosition<kStages>& at) const {
    wait_phase(shared_address(&empty[at.stage]), at.parity ^ 1);
  }
  // Consumers, once per warp, whose lanes have all seen the buffer full: behind a wait for products they have.
  __device__ __forceinline__ void release(const RingPosition<kStages>& at) const {
    if (threadIdx.x % kWarpSize == 0) arrive(shared_address(&empty[at.stage]));
  }
};

}  // namespace cuflash::sm90
