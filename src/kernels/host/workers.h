// SPDX-License-Identifier: MIT
// Tiles handed out to threads. Each tile is computed by one worker from start to end and writes rows that no other tile
// writes, so results do not depend on how many workers there are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#include "kernels/common/mask.h"
#include "kernels/common/sequence.h"
#include "kernels/common/tile_coord.h"
#include "status.h"

namespace cuflash::host {

// Rows of one head of one batch entry.
struct Tile {
  Sequence sequence;
  int32_t entry;
  int32_t head;
  Range rows;
};

// Which side of a sequence tiles are cut from.
enum class Side { kQuery, kKey };

// All tiles of a call; each goes to one of the workers that drain the queue.
template <Side kSide>
class TileQueue {
 public:
  TileQueue(const Attention& a, int32_t tile_rows)
      : a_(a), num_heads_(kSide == Side::kQuery ? a.num_heads : a.num_heads_k), tile_rows_(tile_rows) {}

  // Indices only grow, so a worker walks the batch once. Only lengths in use are counted, no product of upper bounds.
  template <class Body>
  void drain(const Body& body) {
    int64_t index = next_++;
    int64_t first = 0;  // index of the entry's first tile
    for (int32_t entry = 0; entry < a_.batch; ++entry) {
      const Sequence sequence = sequence_of(a_, entry);
      const int32_t length = kSide == Side::kQuery ? sequence.q.length : sequence.k.length;
      const int64_t tiles_per_head = ceil_div(length, tile_rows_);
      const int64_t end = first + tiles_per_head * num_heads_;
      for (; index < end; index = next_++) {
        const auto head = static_cast<int32_t>((index - first) / tiles_per_head);
        const int64_t begin = (index - first) % tiles_per_head * tile_rows_;
        body(Tile{sequence, entry, head, clamp_range(begin, begin + tile_rows_, length)});
      }
      first = end;
    }
  }

 private:
  const Attention& a_;
  int32_t num_heads_;
  int32_t tile_rows_;
  std::atomic<int64_t> next_{0};
};

// Workers that a call is worth: one, the calling thread itself, for small ones.
int32_t num_workers(const Attention& a);

// Memory in which a worker makes one tile's state after the other: up to 390 KiB, too much for a small thread's stack.
template <class State>
class TileMemory {
 public:
  TileMemory() : state_(static_cast<State*>(::operator new(sizeof(State), std::nothrow))) {}
  TileMemory(const TileMemory&) = delete;
  TileMemory& operator=(const TileMemory&) = delete;
  ~TileMemory() { ::operator delete(state_); }

  bool allocated() const { return state_ != nullptr; }

  template <class... Args>
  void run(const Args&... args) {
    static_assert(std::is_trivially_destructible_v<State> && alignof(State) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    std::construct_at(state_, args...)->run();
  }

 private:
  State* state_;
};

// Runs `work` on the calling thread and on count - 1 others. Where no more threads can be had, fewer do all the work.
template <class Work>
void run_workers(int32_t count, const Work& work) {
  std::vector<std::thread> others;
  try {
    others.reserve(static_cast<size_t>(count - 1));
    for (int32_t i = 1; i < count; ++i) others.emplace_back(std::cref(work));
  } catch (const std::exception&) {
    // No memory or no thread to be had: those that run, and this one, drain the queue.
  }
  work();
  for (std::thread& other : others) other.join();
}

// Computes all tiles of a queue, each as State(args, tile).run(), with `workers` threads.
template <class State, class Args, class Queue>
Status compute_tiles(const Args& args, Queue& queue, int32_t workers) {
  std::atomic<bool> computed{false};  // a worker without memory takes no tile; any other ends when none is left
  run_workers(workers, [&] {
    TileMemory<State> memory;
    if (!memory.allocated()) return;
    queue.drain([&](const Tile& tile) { memory.run(args, tile); });
    computed = true;
  });
  if (computed) return Status();
  return fail(CUFLASH_STATUS_INTERNAL_ERROR, "host: no memory (%zu bytes are needed)", sizeof(State));
}

}  // namespace cuflash::host
