// SPDX-License-Identifier: MIT
// What the tests of rooms with several tile rows per capacity share: the tables against the shared memory of every GPU,
// and what calls launch there.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "calls.h"
#include "fake_runtime.h"
#include "kernels/common/row_groups.h"
#include "kernels/common/tile_table.h"
#include "problem.h"
#include "workspace.h"

namespace cuflash::test {

// Shared memory that a block may have, in KB: sm_75; sm_86, sm_89 and sm_120; sm_80 and sm_87; sm_90 and sm_100.
inline constexpr std::array kSharedLimits = {64, 99, 163, 227};

template <class Table>
const auto* tile_with(const Table& table, int head_dim, int kilobytes) {
  return fitting_tile(table, head_dim, static_cast<size_t>(kilobytes) * 1024);
}

// "1..32: 64 x 64, ...": the tile of every head_dim on a GPU with this much shared memory.
template <class Table, class Name>
std::string choices(const Table& table, int kilobytes, const Name& name) {
  const auto tile_of = [&](int head_dim) { return tile_with(table, head_dim, kilobytes); };
  std::string text;
  for (int first = 1; first <= kMaxHeadDim;) {
    int last = first;
    while (last < kMaxHeadDim && tile_of(last + 1) == tile_of(first)) ++last;
    text += (first == 1 ? "" : ", ") + std::to_string(first) + ".." + std::to_string(last) + ": " +
            (tile_of(first) == nullptr ? "none" : name(*tile_of(first)));
    first = last + 1;
  }
  return text;
}

// What holds for every table of a room that serves all head dims and whose code runs on GPUs with these limits.
template <class Table, class Limits, class Threads>
void check_table(const Table& table, const Limits& limits, const Threads& threads_of) {
  std::set<const void*> chosen;
  for (const int kilobytes : limits) {
    for (int head_dim = 1; head_dim <= kMaxHeadDim; ++head_dim) chosen.insert(tile_with(table, head_dim, kilobytes));
  }
  int capacity = 0;
  for (const auto& tile : table) {
    SCOPED_TRACE("row " + std::to_string(&tile - table.data()) + ", capacity " + std::to_string(tile.head_dim));
    EXPECT_GE(tile.head_dim, capacity) << "rows ascend";
    capacity = tile.head_dim;
    EXPECT_EQ(chosen.count(&tile), 1u) << "no GPU runs this row";
    EXPECT_LE(tile.shared_bytes(), 227u << 10) << "fits no GPU";
    // min_blocks holds registers back; where the blocks do not fit, for nothing. An SM of sm_90 has 228 KB of shared
    // memory, 1 KB of which is taken by each block, and 2048 threads.
    EXPECT_LE(static_cast<size_t>(tile.min_blocks) * (tile.shared_bytes() + 1024), 228u << 10);
    EXPECT_LE(tile.min_blocks * threads_of(tile), 2048);
    EXPECT_LE(threads_of(tile), 1024);
  }
  EXPECT_EQ(capacity, kMaxHeadDim);
  EXPECT_EQ(tile_with(table, 1, 8), nullptr) << "nothing fits into 8 KB";
  EXPECT_EQ(tile_with(table, kMaxHeadDim + 1, 227), nullptr);
}

// A piece of a workspace.
inline size_t padded(int64_t floats) {
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// What a call launches on a GPU with this much shared memory, and the workspace that it asks for.
struct Launched {
  size_t workspace_bytes = 0;
  std::vector<LaunchRecord> launches;
};

template <class Params>
Launched launched_by(
    const char* kernel, cuflashDataType_t dtype, int kilobytes, const Shape& shape, bool deterministic = false
) {
  fake_runtime().reset();
  fake_runtime().set_device({.max_shared_bytes = kilobytes * 1024});
  SmallCall<Params> call(CUFLASH_DEVICE_CUDA, shape);
  call.params.dtype = dtype;
  call.params.kernel = kernel;
  if constexpr (std::is_same_v<Params, cuflashBackwardParams_t>) call.params.deterministic = deterministic;
  Launched result;
  EXPECT_EQ(call.workspace_size(&result.workspace_bytes), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
  EXPECT_LE(result.workspace_bytes, call.workspace.bytes());
  EXPECT_EQ(call.run(), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
  result.launches.assign(fake_runtime().launches().begin(), fake_runtime().launches().end());
  return result;
}

inline void expect_launch(
    const LaunchRecord& launch, int64_t grid, int threads, size_t shared_bytes, const char* what
) {
  EXPECT_EQ(launch.grid.x, grid) << what;
  EXPECT_EQ(launch.block.x, static_cast<unsigned>(threads)) << what;
  EXPECT_EQ(launch.shared_bytes, shared_bytes) << what;
}

// A launch of a kernel that goes over query rows of T once.
template <class T>
void expect_row_launch(const LaunchRecord& launch, const Shape& shape, int32_t head_dim, const char* what) {
  const RowGroups groups = row_groups<T>(head_dim % kVectorSize<T> == 0, head_dim);
  const int32_t blocks = ceil_div(shape.seqlen_q, groups.rows_per_block());
  expect_launch(launch, num_tiles(shape.batch, shape.num_heads, blocks), kRowThreads, 0, what);
}

}  // namespace cuflash::test
