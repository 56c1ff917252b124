// SPDX-License-Identifier: MIT
#include "tensor_copies.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "device.h"

namespace emulator {
namespace {

struct Barrier {
  int arrivals = 0;  // that end a phase
  int missing = 0;
  int64_t bytes = 0;  // that were announced and have not come
  uint32_t parity = 0;
  Queue waiting;

  void look() {
    if (missing < 0) fault("more threads arrive at a barrier than it was made for");
    if (bytes < 0) fault("bytes come that were not announced");
    if (missing > 0 || bytes > 0) return;
    missing = arrivals;
    parity ^= 1;
    waiting.wake();
  }
};

std::map<uint32_t, Barrier> barriers;

Barrier& barrier_at(uint32_t address) {
  const auto found = barriers.find(address);
  if (found == barriers.end()) fault("there is no barrier");
  return found->second;
}

struct TensorMap {
  std::byte* data;
  cuuint64_t extents[4];
  cuuint64_t strides[3];
  cuuint32_t rows;  // of a box

  static TensorMap of(const CUtensorMap& map) {
    TensorMap copy;
    std::memcpy(static_cast<void*>(&copy), &map, sizeof(copy));
    return copy;
  }

  // A place in the tensor, nullptr outside of it.
  std::byte* element(int64_t column, int64_t row, int64_t head, int64_t entry) const {
    const int64_t at[] = {column, row, head, entry};
    for (int i = 0; i < 4; ++i) {
      if (at[i] < 0 || at[i] >= static_cast<int64_t>(extents[i])) return nullptr;
    }
    return data + 2 * column + row * strides[0] + head * strides[1] + entry * strides[2];
  }
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

// Calls f(element of the tensor or nullptr, its place in shared memory) for the elements of a box.
template <class F>
void for_each_element(const TensorMap& map, uint32_t box, const BoxPlace& place, F&& f) {
  for (unsigned row = 0; row < map.rows; ++row) {
    for (unsigned column = 0; column < kBoxRowBytes / 2; ++column) {
      std::byte* element =
          map.element(int64_t{place.column} + column, int64_t{place.row} + row, place.head, place.entry);
      f(element, shared_pointer(swizzled(box + row * kBoxRowBytes + 2 * column), 2));
    }
  }
}

void expect_box(uint32_t address, unsigned rows) {
  if (address % (8 * kBoxRowBytes) != 0) fault("a box is not at a multiple of 1024 bytes");
  expect_published(address, rows * kBoxRowBytes);
}

struct Stores {
  std::vector<std::function<void()>> open, committed;
};

std::array<Stores, kMaxThreads> stores;

constexpr unsigned kWordBytes = 4;
std::array<bool, (kSharedBase + kSharedBytes) / kWordBytes> unpublished;
std::array<std::vector<uint32_t>, kMaxThreads> written_words;

}  // namespace

void init_barrier(uint32_t address, int arrivals) {
  shared_pointer(address, 8);
  barriers[address] = {.arrivals = arrivals, .missing = arrivals};
}

void arrive(uint32_t address, int announced_bytes) {
  Barrier& barrier = barrier_at(address);
  barrier.bytes += announced_bytes;
  --barrier.missing;
  barrier.look();
}

void wait_phase(uint32_t address, uint32_t parity) {
  Barrier& barrier = barrier_at(address);
  while (barrier.parity == parity) barrier.waiting.wait();
}

bool phase_has_ended(uint32_t address, uint32_t parity) { return barrier_at(address).parity != parity; }

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
    CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill fill
) {
  const bool is_16_bit = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const bool is_known = is_16_bit && rank == 4 && interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
                        swizzle == CU_TENSOR_MAP_SWIZZLE_128B && fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE &&
                        box[0] == kBoxRowBytes / 2 && box[2] == 1 && box[3] == 1 &&
                        std::all_of(element_strides, element_strides + rank, [](cuuint32_t x) { return x == 1; });
  if (!is_known) fault("a tensor map of a kind that the emulated device does not have");
  constexpr cuuint64_t kMaxExtent = cuuint64_t{1} << 32;
  constexpr cuuint64_t kMaxStride = cuuint64_t{1} << 40;
  bool valid = data != nullptr && reinterpret_cast<uintptr_t>(data) % 16 == 0 && box[1] >= 1 && box[1] <= 256;
  for (cuuint32_t i = 0; i < rank; ++i) valid = valid && extents[i] >= 1 && extents[i] <= kMaxExtent;
  for (cuuint32_t i = 0; i + 1 < rank; ++i) valid = valid && strides[i] % 16 == 0 && strides[i] < kMaxStride;
  if (!valid) return CUDA_ERROR_INVALID_VALUE;
  TensorMap made{static_cast<std::byte*>(data), {}, {}, box[1]};
  std::copy_n(extents, 4, made.extents);
  std::copy_n(strides, 3, made.strides);
  std::memcpy(static_cast<void*>(map), &made, sizeof(made));
  return CUDA_SUCCESS;
}

void load_box(uint32_t to, const CUtensorMap& encoded, uint32_t barrier, const BoxPlace& place) {
  const TensorMap map = TensorMap::of(encoded);
  expect_box(to, map.rows);
  for (uint32_t i = 0; i < map.rows * kBoxRowBytes; i += sizeof(uint32_t)) {
    const uint32_t bits = poison();
    std::memcpy(shared_pointer(to + i, sizeof(bits)), &bits, sizeof(bits));
  }
  do_later([=] {
    for_each_element(map, to, place, [](const std::byte* element, std::byte* shared) {
      const uint16_t zero = 0;
      std::memcpy(shared, element == nullptr ? reinterpret_cast<const std::byte*>(&zero) : element, 2);
    });
    Barrier& full = barrier_at(barrier);
    full.bytes -= map.rows * kBoxRowBytes;
    full.look();
  });
}

void store_box(const CUtensorMap& encoded, uint32_t from, const BoxPlace& place) {
  const TensorMap map = TensorMap::of(encoded);
  expect_box(from, map.rows);
  stores[current_thread].open.emplace_back([=] {
    expect_box(from, map.rows);
    for_each_element(map, from, place, [](std::byte* element, const std::byte* shared) {
      if (element != nullptr) std::memcpy(element, shared, 2);
    });
  });
}

namespace {

// combine(what is there, what is brought), float by float.
template <class Combine>
void store_floats_later(float* to, uint32_t from, int bytes, Combine&& combine) {
  constexpr unsigned kUnit = 16;
  if (reinterpret_cast<uintptr_t>(to) % kUnit != 0 || from % kUnit != 0 || bytes % kUnit != 0) {
    fault("floats to store are not at a multiple of 16 bytes");
  }
  expect_published(from, bytes);
  stores[current_thread].open.emplace_back([=] {
    expect_published(from, bytes);
    for (int i = 0; i < bytes / static_cast<int>(sizeof(float)); ++i) {
      float x;
      std::memcpy(&x, shared_pointer(from + i * sizeof(x), sizeof(x)), sizeof(x));
      to[i] = combine(to[i], x);
    }
  });
}

}  // namespace

void add_floats(float* to, uint32_t from, int bytes) {
  store_floats_later(to, from, bytes, [](float there, float x) { return there + x; });
}

void put_floats(float* to, uint32_t from, int bytes) {
  store_floats_later(to, from, bytes, [](float, float x) { return x; });
}

void commit_stores() {
  auto& [open, committed] = stores[current_thread];
  committed.insert(committed.end(), open.begin(), open.end());
  open.clear();
}

void wait_stores_read() {
  for (const auto& carry_out : stores[current_thread].committed) carry_out();
  stores[current_thread].committed.clear();
}

void store_blocks(uint32_t row, const uint32_t (&blocks)[4]) {
  struct Lane {
    uint32_t brought;
    uint32_t rows[4];  // of each block, that which this lane has a part of
  };
  Lane lane{row, {}};
  meet_warp(
      [](const void* const* lanes) {
        for (unsigned l = 0; l < kWarpSize; ++l) {
          auto* to = static_cast<Lane*>(const_cast<void*>(lanes[l]));
          for (unsigned block = 0; block < 4; ++block) {
            to->rows[block] = static_cast<const Lane*>(lanes[8 * block + l / 4])->brought;
          }
        }
      },
      &lane
  );
  const volatile uint32_t* rows = lane.rows;
  for (int block = 0; block < 4; ++block) {
    write_shared(rows[block] + current_thread % 4 * sizeof(uint32_t), &blocks[block], sizeof(uint32_t));
  }
}

void write_shared(uint32_t to, const void* from, unsigned bytes) {
  std::memcpy(shared_pointer(to, bytes), from, bytes);
  for (uint32_t word = to / kWordBytes; word < (to + bytes) / kWordBytes; ++word) {
    unpublished[word] = true;
    written_words[current_thread].push_back(word);
  }
}

void publish_writes() {
  for (const uint32_t word : written_words[current_thread]) unpublished[word] = false;
  written_words[current_thread].clear();
}

void expect_published(uint32_t address, unsigned bytes) {
  const auto* first = &unpublished.at(address / kWordBytes);
  if (std::find(first, first + bytes / kWordBytes, true) != first + bytes / kWordBytes) {
    fault("a copy or a product meets writes that were not published");
  }
}

void end_block_of_copies() {
  barriers.clear();
  unpublished.fill(false);
  for (auto& words : written_words) words.clear();
  for (const auto& [open, committed] : stores) {
    if (!open.empty() || !committed.empty()) fault("a store was not waited for");
  }
}

}  // namespace emulator
