// SPDX-License-Identifier: MIT
#include "products.h"

#include <array>
#include <bit>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "device.h"
#include "matrices.h"
#include "tensor_copies.h"

namespace emulator {
namespace {

constexpr int kRows = 16;  // of a warp
constexpr int kDepth = 16;
constexpr int kMaxColumns = 256;
constexpr unsigned kChunkBytes = 16;  // what swizzling leaves together
constexpr int kChunk = kChunkBytes / 2;

using Chunk = std::array<uint16_t, kChunk>;
using Registers = std::array<uint32_t, 4>;

// The sums of a warp, kept from its lanes as long as products run.
struct Sums {
  std::array<float*, kWarpSize> places;  // in the lanes' registers
  size_t count;                          // of a lane
  std::vector<float> values;
  int groups = 0;  // that have not ended

  void put(float x, size_t lane, size_t i) const { places[lane][i] = x; }
  void poison_places() const {
    for (size_t lane = 0; lane < kWarpSize; ++lane) {
      for (size_t i = 0; i < count; ++i) put(std::bit_cast<float>(poison()), lane, i);
    }
  }
  void show() const {
    for (size_t lane = 0; lane < kWarpSize; ++lane) {
      for (size_t i = 0; i < count; ++i) put(values[lane * count + i], lane, i);
    }
  }
};

// The operands of a group as its products read them.
struct Group {
  std::vector<std::pair<uint32_t, Chunk>> chunks;
  std::vector<std::pair<const uint32_t*, Registers>> registers;
  std::set<float*> sums;  // keys of Warp::running

  bool operands_are_the_same() const {
    for (const auto& [address, chunk] : chunks) {
      if (std::memcmp(shared_pointer(address, kChunkBytes), chunk.data(), kChunkBytes) != 0) return false;
    }
    for (const auto& [place, values] : registers) {
      if (std::memcmp(place, values.data(), sizeof(values)) != 0) return false;
    }
    return true;
  }
};

struct Warp {
  Group open;
  std::deque<Group> committed;
  Queue late;  // for the end of products
  unsigned waits = 0;
  unsigned ended_waits = 0;
  std::map<float*, Sums> running;  // by the place of lane 0
};

std::array<Warp, kMaxThreads / kWarpSize> warps;

Warp& own_warp() { return warps[current_thread / kWarpSize]; }

// A matrix descriptor: lengths count in 16 bytes.
struct Descriptor {
  uint32_t address, leading_bytes, stride_bytes;

  explicit Descriptor(uint64_t bits) {
    const auto field = [&](int first) { return static_cast<uint32_t>(bits >> first & 0x3fff) << 4; };
    address = field(0);
    leading_bytes = field(16);
    stride_bytes = field(32);
    if (bits >> 62 != 1) fault("a descriptor is not of the swizzle of 128 bytes");
    if ((bits >> 49 & 7) != 0) fault("a descriptor has a base offset");
  }
};

Chunk read_chunk(uint32_t linear_address, Group& group) {
  const uint32_t address = swizzled(linear_address);
  expect_published(address, kChunkBytes);
  Chunk chunk;
  std::memcpy(chunk.data(), shared_pointer(address, kChunkBytes), kChunkBytes);
  group.chunks.emplace_back(address, chunk);
  return chunk;
}

// Calls f(row, depth, element) for `rows` rows from `first` on of an operand whose depth is contiguous.
template <class F>
void read_rows(const Descriptor& from, int first, int rows, Group& group, F&& f) {
  for (int row = 0; row < rows; ++row) {
    const auto at = static_cast<uint32_t>(first + row);
    for (int k = 0; k < kDepth; k += kChunk) {
      const Chunk chunk = read_chunk(from.address + at / 8 * from.stride_bytes + at % 8 * kBoxRowBytes + 2 * k, group);
      for (int e = 0; e < kChunk; ++e) f(row, k + e, chunk[e]);
    }
  }
}

// The same of an operand whose depth is outermost: rows are what lies contiguous.
template <class F>
void read_columns(const Descriptor& from, int first, int rows, Group& group, F&& f) {
  constexpr int kPanel = kBoxRowBytes / 2;
  for (uint32_t k = 0; k < kDepth; ++k) {
    for (int row = 0; row < rows; row += kChunk) {
      const int at = first + row;
      const uint32_t panel = from.address + at / kPanel * from.leading_bytes + at % kPanel * 2;
      const Chunk chunk = read_chunk(panel + k / 8 * from.stride_bytes + k % 8 * kBoxRowBytes, group);
      for (int e = 0; e < kChunk; ++e) f(row + e, k, chunk[e]);
    }
  }
}

// Calls f(lane, sum of the lane, row, column) for the sums of a warp.
template <class F>
void for_each_sum(int blocks, F&& f) {
  for (int lane = 0; lane < static_cast<int>(kWarpSize); ++lane) {
    for (int i = 0; i < 4 * blocks; ++i) f(lane, i, lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
  }
}

const Product& product_of(const void* payload) { return *static_cast<const Product*>(payload); }

// The sums that a product adds to, put aside if this is the first product on them that runs.
Sums& put_aside(const void* const* lanes, Warp& warp) {
  const Product& first = product_of(lanes[0]);
  const auto [found, is_new] = warp.running.try_emplace(first.sums);
  Sums& sums = found->second;
  if (is_new) {
    sums.count = 4 * static_cast<size_t>(first.blocks);
    for (size_t lane = 0; lane < kWarpSize; ++lane) {
      sums.places[lane] = product_of(lanes[lane]).sums;
      sums.values.insert(sums.values.end(), sums.places[lane], sums.places[lane] + sums.count);
    }
    sums.poison_places();
  }
  if (sums.count != 4 * static_cast<size_t>(first.blocks)) fault("products of other shapes run on the same sums");
  if (warp.open.sums.insert(first.sums).second) ++sums.groups;
  return sums;
}

template <class T>
void carry_out(const void* const* lanes) {
  const Product& product = product_of(lanes[0]);
  for (unsigned l = 1; l < kWarpSize; ++l) {
    const Product& other = product_of(lanes[l]);
    const bool same = other.blocks == product.blocks && other.a_descriptor == product.a_descriptor &&
                      other.b_descriptor == product.b_descriptor && other.columns == product.columns &&
                      other.add == product.add;
    if (!same) fault("lanes of a warp differ in a product");
  }
  Warp& warp = own_warp();
  const int columns = 8 * product.blocks;
  static float a[kRows][kDepth], b[kDepth][kMaxColumns], sum[kRows][kMaxColumns];
  const auto to_b = [](int column, int k, uint16_t bits) { b[k][column] = float_of_bits<T>(bits); };
  if (product.a == nullptr) {
    const int first = current_thread / kWarpSize % 4 * kRows;
    const auto to_a = [](int row, int k, uint16_t bits) { a[row][k] = float_of_bits<T>(bits); };
    const Descriptor from(product.a_descriptor);
    product.columns ? read_columns(from, first, kRows, warp.open, to_a)
                    : read_rows(from, first, kRows, warp.open, to_a);
  } else {
    for (int l = 0; l < static_cast<int>(kWarpSize); ++l) {
      const uint32_t* pairs = product_of(lanes[l]).a;
      warp.open.registers.emplace_back(pairs, Registers{pairs[0], pairs[1], pairs[2], pairs[3]});
      for (int i = 0; i < 4; ++i) {
        float* pair = &a[l / 4 + i % 2 * 8][l % 4 * 2 + i / 2 * 8];
        pair[0] = float_of_bits<T>(static_cast<uint16_t>(pairs[i]));
        pair[1] = float_of_bits<T>(static_cast<uint16_t>(pairs[i] >> 16));
      }
    }
  }
  const Descriptor from(product.b_descriptor);
  product.columns ? read_columns(from, 0, columns, warp.open, to_b) : read_rows(from, 0, columns, warp.open, to_b);
  for (int i = 0; i < kRows; ++i) {
    std::fill_n(sum[i], columns, 0.0f);
    for (int k = 0; k < kDepth; ++k) {
      for (int j = 0; j < columns; ++j) sum[i][j] += a[i][k] * b[k][j];
    }
  }
  Sums& sums = put_aside(lanes, warp);
  for_each_sum(product.blocks, [&](int lane, int i, int row, int column) {
    float& value = sums.values[lane * sums.count + i];
    value = sum[row][column] + (product.add ? value : 0.0f);
  });
}

void end_group(Warp& warp) {
  const Group group = std::move(warp.committed.front());
  warp.committed.pop_front();
  const bool good = group.operands_are_the_same();
  for (float* key : group.sums) {
    Sums& sums = warp.running.at(key);
    if (!good) std::fill(sums.values.begin(), sums.values.end(), std::bit_cast<float>(poison()));
    if (--sums.groups > 0) continue;
    sums.show();
    warp.running.erase(key);
  }
}

}  // namespace

template <class T>
void multiply(const Product& product) {
  meet_warp(carry_out<T>, &product);
}
template void multiply<__half>(const Product&);
template void multiply<__nv_bfloat16>(const Product&);

void commit_products() {
  meet_warp(
      [](const void* const*) {
        Warp& warp = own_warp();
        warp.committed.push_back(std::move(warp.open));
        warp.open = {};
      },
      nullptr
  );
}

// Products read their operands for as long as they may: whoever can run does so first, and may spoil them.
void wait_products(unsigned pending_groups) {
  Warp& warp = own_warp();
  if (warp.committed.size() > pending_groups) {
    meet_warp(
        [](const void* const*) {
          Warp& waiting = own_warp();
          ++waiting.waits;
          do_later([&waiting] {
            ++waiting.ended_waits;
            waiting.late.wake();
          });
        },
        nullptr
    );
    while (warp.ended_waits < warp.waits) warp.late.wait();
  }
  meet_warp(
      [](const void* const* lanes) {
        Warp& warp = own_warp();
        while (warp.committed.size() > *static_cast<const unsigned*>(lanes[0])) end_group(warp);
      },
      &pending_groups
  );
}

void end_block_of_products() {
  for (const Warp& warp : warps) {
    if (!warp.running.empty()) fault("a product was not waited for");
  }
}

}  // namespace emulator
