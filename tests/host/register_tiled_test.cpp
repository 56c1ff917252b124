// SPDX-License-Identifier: MIT
// The room register_tiled on the host's side: its tile tables against the shared memory of every GPU, its workspace, and
// the launches that follow from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "calls.h"
#include "fake_runtime.h"
#include "kernels/common/tile_coord.h"
#include "kernels/register_tiled/launchers.h"
#include "kernels/register_tiled/tiles.h"
#include "problem.h"

namespace cuflash::register_tiled {
namespace {

using test::Api;
using test::fake_runtime;
using test::LaunchRecord;
using test::Shape;
using Forward = cuflashForwardParams_t;
using Backward = cuflashBackwardParams_t;

// Shared memory that a block may have, in KB: sm_75; sm_86, sm_89 and sm_120; sm_80 and sm_87; sm_90 and sm_100.
constexpr std::array kSharedLimits = {64, 99, 163, 227};

std::string tile_name(const FwdTile& tile) {
  return std::to_string(tile.block_m) + " x " + std::to_string(tile.block_n);
}
std::string tile_name(const BwdTile& tile) {
  return std::to_string(tile.block_own) + " x " + std::to_string(tile.block_step);
}

// "1..32: 64 x 64, ...": the tile of every head_dim on a GPU with this much shared memory.
template <class Table>
std::string choices(const Table& table, int kilobytes) {
  const auto tile_of = [&](int head_dim) {
    return fitting_tile(table, head_dim, static_cast<size_t>(kilobytes) * 1024);
  };
  std::string text;
  for (int first = 1; first <= kMaxHeadDim;) {
    int last = first;
    while (last < kMaxHeadDim && tile_of(last + 1) == tile_of(first)) ++last;
    text += (first == 1 ? "" : ", ") + std::to_string(first) + ".." + std::to_string(last) + ": " +
            (tile_of(first) == nullptr ? "none" : tile_name(*tile_of(first)));
    first = last + 1;
  }
  return text;
}

TEST(TilesTest, ForwardChoices) {
  EXPECT_EQ(choices(kFwdTiles, 227), "1..32: 64 x 64, 33..64: 128 x 64, 65..128: 128 x 32, 129..256: 64 x 64");
  EXPECT_EQ(choices(kFwdTiles, 163), "1..32: 64 x 64, 33..64: 128 x 64, 65..128: 128 x 32, 129..256: 64 x 32");
  EXPECT_EQ(choices(kFwdTiles, 99), "1..32: 64 x 64, 33..64: 128 x 64, 65..128: 32 x 32, 129..256: none");
  EXPECT_EQ(choices(kFwdTiles, 64), "1..32: 64 x 64, 33..64: 64 x 32, 65..128: 32 x 32, 129..256: none");
}

TEST(TilesTest, BackwardChoices) {
  EXPECT_EQ(choices(kBwdTiles, 227), "1..32: 64 x 64, 33..64: 64 x 64, 65..128: 64 x 32, 129..256: 64 x 32");
  EXPECT_EQ(choices(kBwdTiles, 163), "1..32: 64 x 64, 33..64: 64 x 64, 65..128: 64 x 32, 129..256: 32 x 32");
  EXPECT_EQ(choices(kBwdTiles, 99), "1..32: 64 x 64, 33..64: 64 x 64, 65..128: 32 x 16, 129..256: 16 x 8");
  EXPECT_EQ(choices(kBwdTiles, 64), "1..32: 64 x 64, 33..64: 32 x 32, 65..128: 32 x 16, 129..256: 16 x 8");
}

int threads_of(const FwdTile& tile) { return tile.threads(); }
int threads_of(const BwdTile& tile) { return tile.threads; }

template <class Table>
void check_table(const Table& table) {
  std::set<const void*> chosen;
  for (const int kilobytes : kSharedLimits) {
    for (int head_dim = 1; head_dim <= kMaxHeadDim; ++head_dim) {
      chosen.insert(fitting_tile(table, head_dim, static_cast<size_t>(kilobytes) * 1024));
    }
  }
  int capacity = 0;
  for (const auto& tile : table) {
    SCOPED_TRACE("capacity " + std::to_string(tile.head_dim) + ", tile " + tile_name(tile));
    EXPECT_TRUE(is_valid(tile));
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
  EXPECT_EQ(fitting_tile(table, 1, 16u << 10), nullptr) << "nothing fits into 16 KB";
  EXPECT_EQ(fitting_tile(table, kMaxHeadDim + 1, 227u << 10), nullptr);
}

TEST(TilesTest, ForwardRowsAreValidAndUsed) { check_table(kFwdTiles); }
TEST(TilesTest, BackwardRowsAreValidAndUsed) { check_table(kBwdTiles); }

// Tiles lie one behind the other and are read 16 bytes at a time.
TEST(TilesTest, TilesBeginAtSixteenBytes) {
  for (const FwdTile& t : kFwdTiles) {
    for (const int floats : {t.q_floats(), t.k_floats(), t.v_floats(), t.p_floats(), t.pitch_k()}) {
      EXPECT_EQ(floats % 4, 0) << "capacity " << t.head_dim;
    }
    const int floats = t.q_floats() + t.k_floats() + t.v_floats() + t.p_floats();
    EXPECT_EQ(t.shared_bytes(), static_cast<size_t>(floats) * sizeof(float));
    EXPECT_GE(t.q_floats(), t.block_m * t.head_dim) << "o leaves through the memory of q";
  }
  for (const BwdTile& t : kBwdTiles) {
    for (const int floats : {t.tile_floats(t.block_own), t.tile_floats(t.block_step), t.pitch(), t.pitch_w()}) {
      EXPECT_EQ(floats % 4, 0) << "capacity " << t.head_dim;
    }
    EXPECT_GE(t.pitch(), t.head_dim);
    EXPECT_GE(t.pitch_w(), t.block_step);
  }
}

size_t padded(int64_t floats) {
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

Attention dense(int32_t batch, int32_t num_heads, int32_t seqlen_q, int32_t head_dim) {
  Attention a{};
  a.batch = batch;
  a.num_heads = num_heads;
  a.seqlen_q = seqlen_q;
  a.head_dim = head_dim;
  return a;
}

TEST(BwdWorkspaceTest, DeltaThenTheSumsOfDq) {
  alignas(kWorkspaceAlignment) static char memory[1 << 20];
  for (const int32_t head_dim : {1, 32, 100, 256}) {
    for (const int32_t seqlen_q : {1, 16, 17, 100}) {
      BwdArgs args{};
      args.attention = dense(2, 3, seqlen_q, head_dim);
      const int64_t rows = int64_t{2} * 3 * seqlen_q;

      WorkspaceCarver carver(memory), measure;
      const BwdWorkspace workspace = BwdWorkspace::carve(args, carver);
      EXPECT_EQ(BwdWorkspace::carve(args, measure).dq_sums, nullptr);
      EXPECT_EQ(carver.bytes(), padded(rows) + padded(rows * head_dim));
      EXPECT_EQ(measure.bytes(), carver.bytes());
      ASSERT_LE(carver.bytes(), sizeof(memory));
      EXPECT_EQ(reinterpret_cast<char*>(workspace.delta), memory);
      EXPECT_EQ(reinterpret_cast<char*>(workspace.dq_sums), memory + padded(rows));

      args.deterministic = true;
      WorkspaceCarver deterministic(memory);
      const BwdWorkspace delta_alone = BwdWorkspace::carve(args, deterministic);
      EXPECT_EQ(deterministic.bytes(), padded(rows));
      EXPECT_EQ(reinterpret_cast<char*>(delta_alone.delta), memory);
      EXPECT_EQ(delta_alone.dq_sums, nullptr) << "that is how the kernel knows that it must not sum dq";
    }
  }
}

// Rows of packed sequences are counted once, whatever the bound of an entry is.
TEST(BwdWorkspaceTest, PackedRowsAreCountedOnce) {
  static const int32_t kCuSeqlens[3] = {0, 3, 8};
  BwdArgs args{};
  args.attention = dense(2, 3, 8, 64);
  args.attention.cu_seqlens_q = kCuSeqlens;
  args.attention.total_q = 8;
  WorkspaceCarver carver;
  BwdWorkspace::carve(args, carver);
  EXPECT_EQ(carver.bytes(), padded(3 * 8) + padded(3 * 8 * 64));
}

// What a call launches on a GPU with this much shared memory, and the workspace that it asks for.
struct Launched {
  size_t workspace_bytes = 0;
  std::vector<LaunchRecord> launches;
};

template <class Params>
Launched run_on(int kilobytes, const Shape& shape, bool deterministic) {
  fake_runtime().reset();
  fake_runtime().set_device({.max_shared_bytes = kilobytes * 1024});
  test::SmallCall<Params> call(CUFLASH_DEVICE_CUDA, shape);
  call.params.kernel = "register_tiled";
  if constexpr (std::is_same_v<Params, Backward>) call.params.deterministic = deterministic;
  Launched result;
  EXPECT_EQ(call.workspace_size(&result.workspace_bytes), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
  EXPECT_LE(result.workspace_bytes, call.workspace.bytes());
  EXPECT_EQ(call.run(), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
  result.launches.assign(fake_runtime().launches().begin(), fake_runtime().launches().end());
  return result;
}

void expect_launch(const LaunchRecord& launch, int64_t grid, int threads, size_t shared_bytes, const char* what) {
  EXPECT_EQ(launch.grid.x, grid) << what;
  EXPECT_EQ(launch.block.x, static_cast<unsigned>(threads)) << what;
  EXPECT_EQ(launch.shared_bytes, shared_bytes) << what;
}

// A head_dim of each capacity, and a wider head_dim_v, which decides then.
struct Dims {
  int32_t q;
  int32_t v;
  int wider() const { return std::max(q, v); }
};
constexpr Dims kDims[] = {{1, 1}, {32, 32}, {33, 8}, {64, 64}, {40, 100}, {128, 128}, {129, 1}, {16, 256}};

constexpr int32_t kBatch = 2, kHeads = 4, kHeadsK = 2, kSeqlenQ = 150, kSeqlenK = 70;

Shape shape_with(const Dims& dims) { return {kBatch, kHeads, kHeadsK, kSeqlenQ, kSeqlenK, dims.q, dims.v}; }

TEST(RegisterTiledLaunchTest, Forward) {
  for (const int kilobytes : kSharedLimits) {
    for (const Dims& dims : kDims) {
      const FwdTile* tile = fitting_tile(kFwdTiles, dims.wider(), static_cast<size_t>(kilobytes) * 1024);
      if (tile == nullptr) continue;  // refused: selection_test.cpp
      SCOPED_TRACE(std::to_string(kilobytes) + " KB, head_dim " + std::to_string(dims.wider()));
      const Launched run = run_on<Forward>(kilobytes, shape_with(dims), false);
      EXPECT_EQ(run.workspace_bytes, 0u);
      ASSERT_EQ(run.launches.size(), 1u);
      const int64_t blocks = num_tiles(kBatch, kHeads, ceil_div(kSeqlenQ, tile->block_m));
      expect_launch(run.launches[0], blocks, tile->threads(), tile->shared_bytes(), "fwd");
    }
  }
}

TEST(RegisterTiledLaunchTest, Backward) {
  constexpr int kRowWarps = 8;  // kernels over query rows: a warp each, 8 in a block
  constexpr int64_t kRows = int64_t{kBatch} * kHeads * kSeqlenQ;
  const int64_t row_blocks = num_tiles(kBatch, kHeads, ceil_div(kSeqlenQ, kRowWarps));
  for (const bool deterministic : {false, true}) {
    for (const int kilobytes : kSharedLimits) {
      for (const Dims& dims : kDims) {
        const BwdTile* tile = fitting_tile(kBwdTiles, dims.wider(), static_cast<size_t>(kilobytes) * 1024);
        ASSERT_NE(tile, nullptr) << "a backward pass runs on every GPU";
        SCOPED_TRACE(std::to_string(kilobytes) + " KB, head_dim " + std::to_string(dims.wider()));
        const Launched run = run_on<Backward>(kilobytes, shape_with(dims), deterministic);
        const size_t sums = deterministic ? 0 : padded(kRows * dims.q);
        EXPECT_EQ(run.workspace_bytes, padded(kRows) + sums);
        ASSERT_EQ(run.launches.size(), 3u);
        const int64_t keys = num_tiles(kBatch, kHeadsK, ceil_div(kSeqlenK, tile->block_own));
        const int64_t queries = num_tiles(kBatch, kHeads, ceil_div(kSeqlenQ, tile->block_own));
        expect_launch(run.launches[0], row_blocks, kRowWarps * kWarp, 0, "bwd_delta");
        expect_launch(run.launches[1], keys, tile->threads, tile->shared_bytes(), "bwd");
        if (deterministic) {
          expect_launch(run.launches[2], queries, tile->threads, tile->shared_bytes(), "bwd_dq");
        } else {
          expect_launch(run.launches[2], row_blocks, kRowWarps * kWarp, 0, "bwd_finish_dq");
        }
      }
    }
  }
}

}  // namespace
}  // namespace cuflash::register_tiled
