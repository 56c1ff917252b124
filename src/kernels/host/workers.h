// SPDX-License-Identifier: MIT
// Tiles handed out to threads. Each tile is computed by one worker from start to end and writes rows that no other tile
// writes, so results do not depend on how many workers there are.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/common/mask.h"
#include "kernels/common/sequence.h"
#include "kernels/common/tile_coord.h"

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

// Runs `work` on the calling thread and on count - 1 others. Where no more threads can be had, fewer do all the work.
template <class Work>
void run_workers(int32_t count, const Work& work) {
  std::vector<std::thread> others;
  try {
    others.reserve(static_cast<size_t>(count - 1));
    while (others.size() < others.capacity()) others.emplace_back(std::cref(work));
  } catch (const std::exception&) {
    // No memory or no thread to be had: those that run, and this one, drain the queue.
  }
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace cuflash::host
