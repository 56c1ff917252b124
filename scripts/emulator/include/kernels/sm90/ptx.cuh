// SPDX-License-Identifier: MIT
// In place of src/kernels/sm90/ptx.cuh, which says what the functions do.
#pragma once

#include <cstring>

#include "device.h"
#include "kernels/common/ptx.cuh"
#include "kernels/common/warp.h"
#include "tensor_copies.h"

namespace cuflash::sm90 {

inline void init_barrier(uint32_t barrier, int arrivals) { emulator::init_barrier(barrier, arrivals); }
inline void publish_barriers() {}
inline void arrive(uint32_t barrier) { emulator::arrive(barrier, 0); }
inline void arrive_expecting(uint32_t barrier, int bytes) { emulator::arrive(barrier, bytes); }
inline void wait_phase(uint32_t barrier, uint32_t parity) { emulator::wait_phase(barrier, parity); }
inline bool phase_has_ended(uint32_t barrier, uint32_t parity) { return emulator::phase_has_ended(barrier, parity); }

enum class Keep { kFirst, kLast };
template <Keep>
uint64_t cache_policy() {
  return 0;
}
inline void prefetch_map(const CUtensorMap&) {}

inline void load_box(
    uint32_t to, const CUtensorMap& map, uint32_t barrier, uint64_t, int column, int row, int head, int entry
) {
  emulator::load_box(to, map, barrier, {column, row, head, entry});
}
inline void store_box(const CUtensorMap& map, uint32_t from, int column, int row, int head, int entry) {
  emulator::store_box(map, from, {column, row, head, entry});
}
inline void add_floats(float* to, uint32_t from, int bytes) { emulator::add_floats(to, from, bytes); }
inline void put_floats(float* to, uint32_t from, int bytes) { emulator::put_floats(to, from, bytes); }
inline void commit_stores() { emulator::commit_stores(); }
inline void wait_stores_read() { emulator::wait_stores_read(); }
inline void wait_stores() { emulator::wait_stores_read(); }

// Blocks run one after the other: what is not counted yet will not be.
inline void add_count(uint32_t* counter, uint32_t count) {
  __syncwarp();
  if (threadIdx.x % kWarpSize == 0) *counter += count;
}
inline uint32_t take_count(uint32_t* counter) {
  const uint32_t before = threadIdx.x % kWarpSize == 0 ? (*counter)++ : 0;
  return __shfl_sync(kFullWarp, before, 0);
}
inline uint32_t read_count(const uint32_t* counter) { return __shfl_sync(kFullWarp, *counter, 0); }
inline void wait_count(const uint32_t* counter, uint32_t count) {
  if (*counter < count) emulator::fault("a wait for what no block has counted");
}

inline void keep_order() {}
inline void publish_writes() { emulator::publish_writes(); }

template <int kThreads>
void sync_threads(int barrier) {
  emulator::meet_block(barrier, kThreads);
}
template <int kThreads>
void arrive_threads(int barrier) {
  emulator::arrive_at_block(barrier, kThreads);
}
template <int kThreads>
bool sync_any(int barrier, bool x) {
  return emulator::meet_block(barrier, kThreads, x) != 0;
}

inline bool is_elected() { return threadIdx.x % kWarpSize == 0; }

template <int>
void give_registers() {}
template <int>
void take_registers() {}

inline void store_blocks(uint32_t row, const uint32_t (&blocks)[4]) { emulator::store_blocks(row, blocks); }
inline void store_floats(uint32_t to, const float (&x)[4]) { emulator::write_shared(to, x, sizeof(x)); }
inline void clear_chunk(uint32_t to) {
  const uint32_t zeros[4] = {};
  emulator::write_shared(to, zeros, sizeof(zeros));
}

inline int made_anew(int x) { return x; }

}  // namespace cuflash::sm90
