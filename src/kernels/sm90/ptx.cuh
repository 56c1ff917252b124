// SPDX-License-Identifier: MIT
// The instructions that the room is made of, but for the products (PTX ISA: mbarrier, cp.async.bulk.tensor, barrier,
// setmaxnreg). Addresses of shared memory are 32-bit integers from shared_address() on.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/common/ptx.cuh"
#include "kernels/common/warp.h"

namespace cuflash::sm90 {

// ---- Barriers in shared memory: a phase ends when all arrivals have come, and all bytes that were announced

__device__ __forceinline__ void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers known to the copy engine; to other threads, __syncthreads() does.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}

// Arrives, and announces bytes that copies are going to bring.
__device__ __forceinline__ void arrive_expecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
}

// Waits until the phase of this parity has ended. The phase before the first has parity 1 and has ended.
__device__ __forceinline__ void wait_phase(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory"
    );
  } while (done == 0);
}

// Whether it has, without a wait.
__device__ __forceinline__ bool phase_has_ended(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory"
  );
  return done != 0;
}

// ---- Copies of boxes of a tensor, by one thread

enum class Keep { kFirst, kLast };  // what the L2 cache evicts first, or last

template <Keep kKeep>
__device__ __forceinline__ uint64_t cache_policy() {
  uint64_t policy;
  if constexpr (kKeep == Keep::kFirst) {
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory");
}

// The box from element (column, row, head, entry) on to shared memory. Elements outside of the tensor become 0 and count as
// bytes like all others.
__device__ __forceinline__ void load_box(
    uint32_t to, const CUtensorMap& map, uint32_t barrier, uint64_t policy, int column, int row, int head, int entry
) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;"
      :
      : "r"(to), "l"(&map), "r"(barrier), "l"(policy), "r"(column), "r"(row), "r"(head), "r"(entry)
      : "memory"
  );
}

// A box from shared memory; elements outside of the tensor are left out.
__device__ __forceinline__ void store_box(
    const CUtensorMap& map, uint32_t from, int column, int row, int head, int entry
) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
               :
               : "l"(&map), "r"(from), "r"(column), "r"(row), "r"(head), "r"(entry)
               : "memory");
}

// Adds floats from shared memory to those in global memory, `bytes` of them in a row, at multiples of 16 bytes.
__device__ __forceinline__ void add_floats(float* to, uint32_t from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
               :
               : "l"(to), "r"(from), "r"(bytes)
               : "memory");
}

// The same in place of those in global memory.
__device__ __forceinline__ void put_floats(float* to, uint32_t from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(to), "r"(from), "r"(bytes)
               : "memory");
}

// Closes a group of this thread's stores.
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" : : : "memory"); }

// Waits until all stores of this thread have read shared memory.
__device__ __forceinline__ void wait_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory"); }

// Waits until all stores of this thread are done.
__device__ __forceinline__ void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" : : : "memory"); }

// ---- Counters in global memory, between blocks. What is counted are stores of the copy engine.

__device__ __forceinline__ void fence_copies() { asm volatile("fence.proxy.async.global;" : : : "memory"); }

// Says that all lanes of this warp are done.
__device__ __forceinline__ void add_count(uint32_t* counter, uint32_t count) {
  fence_copies();
  __syncwarp();
  if (threadIdx.x % kWarpSize == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" : : "l"(counter), "r"(count) : "memory");
  }
}

// Adds 1, once for the warp; what the counter was before.
__device__ __forceinline__ uint32_t take_count(uint32_t* counter) {
  uint32_t before = 0;
  if (threadIdx.x % kWarpSize == 0) {
    asm volatile("atom.acquire.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(1) : "memory");
  }
  before = __shfl_sync(kFullWarp, before, 0);
  fence_copies();
  return before;
}

// What the counter is, the same for all lanes.
__device__ __forceinline__ uint32_t read_count(const uint32_t* counter) {
  uint32_t now = 0;
  if (threadIdx.x % kWarpSize == 0) {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  }
  now = __shfl_sync(kFullWarp, now, 0);
  fence_copies();
  return now;
}

// Waits, as a thread, until a counter is at least this.
__device__ __forceinline__ void wait_count(const uint32_t* counter, uint32_t count) {
  uint32_t now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  } while (now < count);
  fence_copies();
}

// Makes this thread's ordinary writes to shared memory visible to products and copies that begin behind a barrier.
__device__ __forceinline__ void publish_writes() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

// Nothing that touches memory moves across this in the compiler.
__device__ __forceinline__ void keep_order() { asm volatile("" : : : "memory"); }

// ---- Threads

// Barriers of kThreads threads that name the same one of barriers 1 to 15; whoever arrives does not wait.
template <int kThreads>
__device__ __forceinline__ void sync_threads(int barrier) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" : : "r"(barrier), "n"(kThreads) : "memory");
}

template <int kThreads>
__device__ __forceinline__ void arrive_threads(int barrier) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" : : "r"(barrier), "n"(kThreads) : "memory");
}

// The same as sync_threads(); whether x is true for one of the threads.
template <int kThreads>
__device__ __forceinline__ bool sync_any(int barrier, bool x) {
  uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred x, any;\n"
      "setp.ne.u32 x, %1, 0;\n"
      "barrier.cta.red.or.aligned.pred any, %2, %3, x;\n"
      "selp.u32 %0, 1, 0, any;\n"
      "}"
      : "=r"(any)
      : "r"(static_cast<uint32_t>(x)), "r"(barrier), "n"(kThreads)
      : "memory"
  );
  return any != 0;
}

// True for one lane of a warp that is whole. Of a branch that it decides ptxas knows that one thread takes it, and leaves out
// the loop over lanes that it else puts around every copy.
__device__ __forceinline__ bool is_elected() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}"
      : "=r"(elected)
  );
  return elected != 0;
}

// Registers per thread from here on, for all warps of a warpgroup: fewer, or more as soon as others have given them.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

// Four blocks of 8x8 elements to shared memory, as mma holds them: lane l has elements (l / 4, 2 (l % 4)) and the next one of
// each block, and the address of row l % 8 of block l / 8.
__device__ __forceinline__ void store_blocks(uint32_t row, const uint32_t (&blocks)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(row), "r"(blocks[0]), "r"(blocks[1]), "r"(blocks[2]), "r"(blocks[3])
               : "memory");
}

__device__ __forceinline__ void store_floats(uint32_t to, const float (&x)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}

// 16 bytes of zeros to shared memory.
__device__ __forceinline__ void clear_chunk(uint32_t to) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" : : "r"(to), "r"(0) : "memory");
}

// ---- Registers

// The same number, of which the compiler does not know that it is: what is made of it is made anew here.
__device__ __forceinline__ int made_anew(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace cuflash::sm90
