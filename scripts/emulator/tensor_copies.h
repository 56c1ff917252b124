// SPDX-License-Identifier: MIT
// Copies of boxes of tensors, which the device carries out on its own, and the barriers that say when they have come.
//
// A box takes the place of what lies there when it is issued, and holds poison until it arrives; stores and sums read shared
// memory when they are waited for and not before. What threads have written is not seen by these copies, nor by products, until
// the thread that wrote it publishes it: to read it earlier ends the program.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace emulator {

// ---- Barriers in shared memory (PTX ISA, mbarrier): a phase ends when all arrivals have come, and all announced bytes

void init_barrier(uint32_t barrier, int arrivals);
void arrive(uint32_t barrier, int announced_bytes);
void wait_phase(uint32_t barrier, uint32_t parity);  // until the phase of this parity has ended
bool phase_has_ended(uint32_t barrier, uint32_t parity);

// ---- Copies (PTX ISA, cp.async.bulk.tensor) of boxes of 16-bit elements, 128 bytes a row, with the swizzle of 128 bytes

constexpr unsigned kBoxRowBytes = 128;

// Exchanges 16-byte chunks of eight rows of 128 bytes.
constexpr uint32_t swizzled(uint32_t address) { return address ^ (address / kBoxRowBytes % 8 * 16); }

// What the driver's cuTensorMapEncodeTiled() does, for these boxes.
CUresult encode_tensor_map(
    CUtensorMap* map,
    CUtensorMapDataType type,
    cuuint32_t rank,
    void* data,
    const cuuint64_t* extents,
    const cuuint64_t* strides,
    const cuuint32_t* box,
    const cuuint32_t* element_strides,
    CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill
);

struct BoxPlace {
  int column, row, head, entry;
};
void load_box(uint32_t to, const CUtensorMap& map, uint32_t barrier, const BoxPlace& place);
void store_box(const CUtensorMap& map, uint32_t from, const BoxPlace& place);
void add_floats(float* to, uint32_t from, int bytes);  // to those in global memory
void put_floats(float* to, uint32_t from, int bytes);  // in their place
void commit_stores();
void wait_stores_read();

// ---- Writes of threads (PTX ISA, fence.proxy.async)

void write_shared(uint32_t to, const void* from, unsigned bytes);
void store_blocks(uint32_t row, const uint32_t (&blocks)[4]);  // PTX ISA, stmatrix, four blocks of 8x8 elements
void publish_writes();                                         // those of the thread that runs
void expect_published(uint32_t address, unsigned bytes);       // by all threads

// Refuses what has not ended.
void end_block_of_copies();

}  // namespace emulator
