// SPDX-License-Identifier: MIT
// A CUDA device on the CPU: runs one block after the other, and the threads of a block as fibers of the calling thread.
//
//            launch ──> block 0 ──> block 1 ──> ...          (in order of their number)
//                          │
//             warp 2 │ warp 0 │ warp 1                       (a scheduler picks whose turn it is)
//             ██████ │ ░░░░░░ │ ██████
//             a fiber per lane: runs until it meets others in a collective operation or a barrier
//
// Nothing is promised that CUDA does not promise: warps run apart as far as their barriers let them, in an order that
// each launch draws anew; lanes run one by one between collective operations, and some of them later; the data of an
// asynchronous copy arrives when it is waited for and not before; shared memory holds poison when a block begins. A
// kernel that relies on luck fails here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace emulator {

// What a kernel did wrong. Says it, and where, and ends the program as a fault on a device does.
[[noreturn]] void fault(const char* what);

// ---- The thread that runs

struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

extern unsigned current_thread;  // in its block
extern Extent block_index, block_size, grid_size;

constexpr unsigned kWarpSize = 32;
constexpr unsigned kMaxThreads = 1024;  // of a block

// ---- Meetings

// Waits until all lanes of the warp are in the same operation; the last one carries it out, for all of them.
// `payloads[l]` is what lane l brought.
using Operation = void (*)(const void* const* payloads);
void meet_warp(Operation operation, const void* payload);

// Waits until `threads` threads of the block have come to this barrier, 0 to 15. Returns the sum of what they brought.
int meet_block(int barrier, unsigned threads, int value = 0);

// Comes to the barrier as one of these threads, but does not wait for the others.
void arrive_at_block(int barrier, unsigned threads);

// Threads that wait for something else.
class Queue {
 public:
  void wait();  // the thread that runs, until wake()
  void wake();

 private:
  std::vector<unsigned> threads_;
};

// What the device does on its own: as late as it may, when no thread can run, in an order that is drawn. A block must not
// end before.
void do_later(std::function<void()> action);

// ---- Shared memory. Addresses are 32-bit, as those of the PTX state space.

constexpr size_t kSharedBytes = 227 << 10;  // that a block can have
constexpr uint32_t kSharedBase = 1024;      // address of the first byte: 0 is no address

uint32_t shared_address(const void* pointer);
std::byte* shared_pointer(uint32_t address, unsigned bytes);  // refuses what is out of bounds or not aligned to `bytes`

// What lies where nothing was written yet, two 16-bit elements or a float: NaN, or numbers that could pass for data.
uint32_t poison();

// ---- Asynchronous copies (PTX ISA, cp.async): `used` of `bytes` are read, the others become 0.

void copy_async(void* to, const void* from, unsigned bytes, unsigned used);
void commit_copies();
void wait_copies(size_t pending_groups);

// ---- Launches

struct Launch {
  unsigned blocks = 0, threads = 0;
  size_t shared_bytes = 0;
  std::byte* shared = nullptr;
};

// One launch at a time, whatever thread it comes from.
void run(const Launch& launch, const std::function<void()>& kernel);

// How a kernel is called with the arguments that a launch points to, and where its shared memory is.
struct KernelEntry {
  void (*call)(const void* kernel, void** arguments) = nullptr;
  std::byte* shared = nullptr;
};
void remember_kernel(const void* kernel, const KernelEntry& entry);
const KernelEntry* find_kernel(const void* kernel);  // nullptr if it was not remembered

}  // namespace emulator
