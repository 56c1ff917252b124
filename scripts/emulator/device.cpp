// SPDX-License-Identifier: MIT
#include "device.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "fiber.h"
#include "products.h"
#include "tensor_copies.h"

namespace emulator {

unsigned current_thread = 0;
Extent block_index, block_size, grid_size;

namespace {

enum class Schedule {
  kFine,         // every warp does one step in turn
  kLanesBehind,  // as kFar, but some lanes of one warp run only when no others can
  kFar,          // every warp runs until it has to wait
  kOneBehind,    // as kFar, but one warp runs only when no other can
  kOneInFront,   // one warp runs whenever it can
  kCount
};

struct Copy {
  std::byte* to;
  const std::byte* from;
  unsigned bytes, used;

  void arrive() const {
    if (used > 0) std::memcpy(to, from, used);
    std::memset(to + used, 0, bytes - used);
  }
};

// The copies of a thread in their order, of which groups arrive.
class Copies {
 public:
  void add(const Copy& copy) { copies_.push_back(copy); }
  void commit() { group_ends_.push_back(copies_.size()); }

  void wait(size_t pending_groups) {
    for (; group_ends_.size() - next_group_ > pending_groups; ++next_group_) arrive_until(group_ends_[next_group_]);
  }

  void arrive() { arrive_until(copies_.size()); }

  void clear() {
    copies_.clear();
    group_ends_.clear();
    next_copy_ = next_group_ = 0;
  }

 private:
  void arrive_until(size_t end) {
    for (; next_copy_ < end; ++next_copy_) copies_[next_copy_].arrive();
  }

  std::vector<Copy> copies_;
  std::vector<size_t> group_ends_;
  size_t next_copy_ = 0, next_group_ = 0;
};

struct Thread {
  Fiber fiber;
  Operation operation = nullptr;
  const void* payload = nullptr;
  Copies copies;
};

struct Barrier {
  unsigned arrived = 0, expected = 0;
  int sum = 0, last_sum = 0;
  Queue waiting;

  // Says whether this thread was the last that was waited for.
  bool arrive(unsigned threads_expected, int value) {
    if (arrived > 0 && expected != threads_expected) fault("threads expect different numbers at a barrier");
    expected = threads_expected;
    sum += value;
    if (++arrived < expected) return false;
    arrived = 0;
    last_sum = std::exchange(sum, 0);
    waiting.wake();
    return true;
  }
};

std::mt19937 random_from_environment() {
  const char* seed = std::getenv("CUFLASH_EMULATOR_SEED");
  return std::mt19937(seed == nullptr ? 1 : static_cast<uint32_t>(std::strtoul(seed, nullptr, 10)));
}

// All of it belongs to the launch that holds the mutex.
std::mutex device_mutex;
std::mt19937 random_bits = random_from_environment();
Launch launch;
const std::function<void()>* kernel_call = nullptr;
Fiber scheduler;
std::array<Thread, kMaxThreads> threads;
std::array<uint32_t, kMaxThreads / kWarpSize> ready;  // bits of the lanes that neither wait nor have ended
std::array<unsigned, kMaxThreads / kWarpSize> arrived_in_warp;
std::array<Barrier, 16> barriers;
std::vector<std::function<void()>> late_actions;
unsigned num_live = 0;
uint32_t poison_bits = 0;

Thread& self() { return threads[current_thread]; }

void fill_with_poison(std::byte* to, size_t bytes) {
  for (size_t i = 0; i + sizeof(poison_bits) <= bytes; i += sizeof(poison_bits)) {
    std::memcpy(to + i, &poison_bits, sizeof(poison_bits));
  }
}

uint32_t& ready_lanes_with(unsigned thread) { return ready[thread / kWarpSize]; }
uint32_t lane_bit(unsigned thread) { return uint32_t{1} << thread % kWarpSize; }

void wait_for_others() {
  ready_lanes_with(current_thread) &= ~lane_bit(current_thread);
  self().fiber.switch_to(scheduler);
}

void run_thread() {
  (*kernel_call)();
  self().copies.arrive();  // those that nobody waited for: late, and wherever it hits whoever uses the place by then
  --num_live;
  wait_for_others();
}

// Runs these lanes of a warp until their next meeting, in a drawn order; says whether there was one.
bool step(unsigned warp, uint32_t lanes) {
  if (lanes == 0) return false;
  const uint32_t draw = random_bits();
  const unsigned first = draw % kWarpSize;
  const unsigned stride = draw / kWarpSize % kWarpSize | 1;  // odd: every lane has its turn
  for (unsigned i = 0; i < kWarpSize; ++i) {
    const unsigned lane = (first + i * stride) % kWarpSize;
    if ((lanes >> lane & 1) == 0) continue;
    current_thread = warp * kWarpSize + lane;
    scheduler.switch_to(self().fiber);
  }
  return true;
}

bool step(unsigned warp) { return step(warp, ready[warp]); }

bool run_until_it_waits(unsigned warp) {
  bool any = false;
  while (step(warp)) any = true;
  return any;
}

bool do_something_late() {
  if (late_actions.empty()) return false;
  std::swap(late_actions[random_bits() % late_actions.size()], late_actions.back());
  const std::function<void()> action = std::move(late_actions.back());
  late_actions.pop_back();
  action();
  return true;
}

// One round over the warps; says whether any of them could run, or the device itself.
bool run_round(Schedule schedule, const std::vector<unsigned>& order, unsigned special, uint32_t special_lanes) {
  bool any = schedule == Schedule::kOneInFront && run_until_it_waits(special);
  for (const unsigned warp : order) {
    if (schedule == Schedule::kFine) {
      any |= step(warp);
    } else if (schedule == Schedule::kLanesBehind) {
      const uint32_t in_front = warp == special ? ~special_lanes : ~uint32_t{0};
      while (step(warp, ready[warp] & in_front)) any = true;
    } else if (schedule == Schedule::kFar) {
      any |= run_until_it_waits(warp);
    } else if (warp != special) {
      if (schedule == Schedule::kOneBehind) any |= run_until_it_waits(warp);
      if (schedule == Schedule::kOneInFront && step(warp)) {
        any = true;
        run_until_it_waits(special);
      }
    }
  }
  if (any) return true;
  const bool late_first = random_bits() % 2 == 0;
  if (late_first && do_something_late()) return true;
  if (schedule == Schedule::kOneBehind || schedule == Schedule::kLanesBehind) any = step(special);
  return any || do_something_late();
}

void run_block(Schedule schedule) {
  fill_with_poison(launch.shared, launch.shared_bytes);
  barriers.fill({});
  arrived_in_warp.fill(0);
  std::fill_n(ready.begin(), launch.threads / kWarpSize, ~uint32_t{0});
  num_live = launch.threads;
  for (unsigned i = 0; i < launch.threads; ++i) {
    Thread& thread = threads[i];
    thread.copies.clear();
    thread.fiber.start(run_thread);
  }
  std::vector<unsigned> order(launch.threads / kWarpSize);
  std::iota(order.begin(), order.end(), 0);
  const unsigned special = random_bits() % order.size();
  const uint32_t special_lanes = random_bits();
  while (num_live > 0) {
    std::shuffle(order.begin(), order.end(), random_bits);
    if (!run_round(schedule, order, special, special_lanes))
      fault("all threads wait: a barrier or an operation of a warp is not met by all");
  }
  if (!late_actions.empty()) fault("a copy arrives when its block has ended");
  end_block_of_copies();
  end_block_of_products();
}

}  // namespace

void fault(const char* what) {
  std::fprintf(stderr, "emulated device: %s (block %u, thread %u)\n", what, block_index.x, current_thread);
  std::abort();
}

void meet_warp(Operation operation, const void* payload) {
  const unsigned warp = current_thread / kWarpSize;
  self().operation = operation;
  self().payload = payload;
  if (++arrived_in_warp[warp] < kWarpSize) return wait_for_others();
  arrived_in_warp[warp] = 0;
  const void* payloads[kWarpSize];
  Thread* lanes = &threads[warp * kWarpSize];
  for (unsigned l = 0; l < kWarpSize; ++l) {
    if (lanes[l].operation != operation) fault("lanes of a warp meet in different operations");
    payloads[l] = lanes[l].payload;
  }
  operation(payloads);
  ready[warp] = ~uint32_t{0};
}

int meet_block(int barrier, unsigned threads_expected, int value) {
  Barrier& b = barriers.at(barrier);
  if (!b.arrive(threads_expected, value)) b.waiting.wait();
  return b.last_sum;
}

void arrive_at_block(int barrier, unsigned threads_expected) { barriers.at(barrier).arrive(threads_expected, 0); }

void Queue::wait() {
  threads_.push_back(current_thread);
  wait_for_others();
}

void Queue::wake() {
  for (const unsigned thread : threads_) ready_lanes_with(thread) |= lane_bit(thread);
  threads_.clear();
}

void do_later(std::function<void()> action) { late_actions.push_back(std::move(action)); }

uint32_t shared_address(const void* pointer) {
  const auto offset = static_cast<const std::byte*>(pointer) - launch.shared;
  if (offset < 0 || static_cast<size_t>(offset) > launch.shared_bytes) fault("a pointer to shared memory leaves it");
  return static_cast<uint32_t>(offset) + kSharedBase;
}

std::byte* shared_pointer(uint32_t address, unsigned bytes) {
  if (address < kSharedBase || address - kSharedBase + bytes > launch.shared_bytes) {
    fault("an address of shared memory is out of bounds");
  }
  if (address % bytes != 0) fault("an address of shared memory is not aligned");
  return launch.shared + (address - kSharedBase);
}

void copy_async(void* to, const void* from, unsigned bytes, unsigned used) {
  if (used > bytes) fault("an asynchronous copy uses more bytes than it has");
  if (reinterpret_cast<uintptr_t>(from) % bytes != 0) fault("the source of an asynchronous copy is not aligned");
  const Copy copy{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, used};
  fill_with_poison(copy.to, bytes);
  self().copies.add(copy);
}

uint32_t poison() { return poison_bits; }

void commit_copies() { self().copies.commit(); }

void wait_copies(size_t pending_groups) { self().copies.wait(pending_groups); }

void run(const Launch& requested, const std::function<void()>& kernel) {
  const std::lock_guard<std::mutex> lock(device_mutex);
  launch = requested;
  kernel_call = &kernel;
  grid_size = {launch.blocks, 1, 1};
  block_size = {launch.threads, 1, 1};
  const auto schedule = static_cast<Schedule>(random_bits() % static_cast<unsigned>(Schedule::kCount));
  poison_bits = random_bits() % 2 == 0 ? 0x7fff7fff : 0x42804280;
  for (unsigned block = 0; block < launch.blocks; ++block) {
    block_index = {block, 0, 0};
    run_block(schedule);
  }
}

namespace {
std::mutex kernels_mutex;
std::map<const void*, KernelEntry> kernels;
}  // namespace

void remember_kernel(const void* kernel, const KernelEntry& entry) {
  const std::lock_guard<std::mutex> lock(kernels_mutex);
  kernels[kernel] = entry;
}

const KernelEntry* find_kernel(const void* kernel) {
  const std::lock_guard<std::mutex> lock(kernels_mutex);
  const auto found = kernels.find(kernel);
  return found == kernels.end() ? nullptr : &found->second;
}

}  // namespace emulator
