// SPDX-License-Identifier: MIT
// The room register_tiled on the host's side: its tile tables against the shared memory of every GPU, its workspace, and
// the launches that follow from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/register_tiled/launchers.h"
#include "kernels/register_tiled/tiles.h"
#include "tile_tables.h"

namespace cuflash::register_tiled {
namespace {

using test::check_table;
using test::expect_launch;
using test::expect_row_launch;
using test::kSharedLimits;
using test::Launched;
using test::launched_by;
using test::padded;
using test::Shape;
using test::tile_with;
using Forward = cuflashForwardParams_t;
using Backward = cuflashBackwardParams_t;

template <class Table>
std::string choices(const Table& table, int kilobytes) {
  return test::choices(table, kilobytes, [](const auto& tile) {
    if constexpr (requires { tile.block_own; }) {
      return std::to_string(tile.block_own) + " x " + std::to_string(tile.block_step);
    } else {
      return std::to_string(tile.block_m) + " x " + std::to_string(tile.block_n);
    }
  });
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

TEST(TilesTest, ForwardRowsAreUsed) {
  check_table(kFwdTiles, kSharedLimits, [](const FwdTile& tile) { return tile.threads(); });
}
TEST(TilesTest, BackwardRowsAreUsed) {
  check_table(kBwdTiles, kSharedLimits, [](const BwdTile& tile) { return tile.threads; });
}

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
      const FwdTile* tile = tile_with(kFwdTiles, dims.wider(), kilobytes);
      if (tile == nullptr) continue;  // refused: selection_test.cpp
      SCOPED_TRACE(std::to_string(kilobytes) + " KB, head_dim " + std::to_string(dims.wider()));
      const Launched run = launched_by<Forward>("register_tiled", CUFLASH_R_32F, kilobytes, shape_with(dims));
      EXPECT_EQ(run.workspace_bytes, 0u);
      ASSERT_EQ(run.launches.size(), 1u);
      const int64_t blocks = num_tiles(kBatch, kHeads, ceil_div(kSeqlenQ, tile->block_m));
      expect_launch(run.launches[0], blocks, tile->threads(), tile->shared_bytes(), "fwd");
    }
  }
}

TEST(RegisterTiledLaunchTest, Backward) {
  constexpr int64_t kRows = int64_t{kBatch} * kHeads * kSeqlenQ;
  for (const bool deterministic : {false, true}) {
    for (const int kilobytes : kSharedLimits) {
      for (const Dims& dims : kDims) {
        const BwdTile* tile = tile_with(kBwdTiles, dims.wider(), kilobytes);
        ASSERT_NE(tile, nullptr) << "a backward pass runs on every GPU";
        SCOPED_TRACE(std::to_string(kilobytes) + " KB, head_dim " + std::to_string(dims.wider()));
        const Launched run =
            launched_by<Backward>("register_tiled", CUFLASH_R_32F, kilobytes, shape_with(dims), deterministic);
        const size_t sums = deterministic ? 0 : padded(kRows * dims.q);
        EXPECT_EQ(run.workspace_bytes, padded(kRows) + sums);
        ASSERT_EQ(run.launches.size(), 3u);
        const int64_t keys = num_tiles(kBatch, kHeadsK, ceil_div(kSeqlenK, tile->block_own));
        const int64_t queries = num_tiles(kBatch, kHeads, ceil_div(kSeqlenQ, tile->block_own));
        expect_row_launch<float>(run.launches[0], shape_with(dims), dims.v, "bwd_delta");
        expect_launch(run.launches[1], keys, tile->threads, tile->shared_bytes(), "bwd");
        if (deterministic) {
          expect_launch(run.launches[2], queries, tile->threads, tile->shared_bytes(), "bwd_dq");
        } else {
          expect_row_launch<float>(run.launches[2], shape_with(dims), dims.q, "bwd_finish_dq");
        }
      }
    }
  }
}

}  // namespace
}  // namespace cuflash::register_tiled
