// SPDX-License-Identifier: MIT
// The room cp_async on the host's side: its tile tables against the shared memory of every GPU that it runs on, its
// workspace, and the launches that follow from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "kernels/cp_async/launchers.h"
#include "kernels/cp_async/tiles.h"
#include "tile_tables.h"

namespace cuflash::cp_async {
namespace {

using test::expect_launch;
using test::expect_row_launch;
using test::Launched;
using test::launched_by;
using test::padded;
using test::Shape;
using test::tile_with;
using Forward = cuflashForwardParams_t;
using Backward = cuflashBackwardParams_t;

// KB that a block may have: sm_86, sm_89 and sm_120; sm_80 and sm_87; sm_90 and sm_100.
constexpr std::array kSharedLimits = {99, 163, 227};

TEST(TilesTest, RowsAreUsed) {
  const auto threads_of = [](const auto& tile) { return tile.threads(); };
  test::check_table(kFwdTiles, kSharedLimits, threads_of);
  test::check_table(kBwdTiles, kSharedLimits, threads_of);
}

TEST(TilesTest, EveryGpuRunsEveryHeadDim) {
  for (const int kilobytes : kSharedLimits) {
    for (int head_dim = 1; head_dim <= kMaxHeadDim; ++head_dim) {
      EXPECT_NE(tile_with(kFwdTiles, head_dim, kilobytes), nullptr) << kilobytes << " KB, head_dim " << head_dim;
      EXPECT_NE(tile_with(kBwdTiles, head_dim, kilobytes), nullptr) << kilobytes << " KB, head_dim " << head_dim;
    }
  }
}

// The deterministic kernel runs in the tile row of the other one: it needs no more.
TEST(TilesTest, DeterministicKernelFits) {
  for (const BwdTile& tile : kBwdTiles) {
    EXPECT_LE(tile.dq_shared_bytes(), tile.shared_bytes()) << "capacity " << tile.head_dim;
    EXPECT_LE(tile.dq_threads(), 1024) << "capacity " << tile.head_dim;
  }
}

// Multiples of 8: the room copies 16 bytes. A head_dim of each capacity, and a wider head_dim_v, which decides then.
struct Dims {
  int32_t q;
  int32_t v;
  int wider() const { return std::max(q, v); }
};
constexpr Dims kDims[] = {{8, 8}, {32, 32}, {64, 64}, {40, 96}, {128, 128}, {136, 8}, {192, 128}, {16, 256}};
constexpr cuflashDataType_t kDTypes[] = {CUFLASH_R_16F, CUFLASH_R_16BF};

Shape shape_with(const Dims& dims) { return {2, 4, 2, 100, 70, dims.q, dims.v}; }

TEST(CpAsyncLaunchTest, Forward) {
  for (const int kilobytes : kSharedLimits) {
    for (const Dims& dims : kDims) {
      for (const cuflashDataType_t dtype : kDTypes) {
        const FwdTile* tile = tile_with(kFwdTiles, dims.wider(), kilobytes);
        SCOPED_TRACE(std::to_string(kilobytes) + " KB, head_dim " + std::to_string(dims.wider()));
        ASSERT_NE(tile, nullptr);
        const Shape shape = shape_with(dims);
        const Launched run = launched_by<Forward>("cp_async", dtype, kilobytes, shape);
        EXPECT_EQ(run.workspace_bytes, 0u);
        ASSERT_EQ(run.launches.size(), 1u);
        const int64_t blocks = num_tiles(shape.batch, shape.num_heads, ceil_div(shape.seqlen_q, tile->block_m));
        expect_launch(run.launches[0], blocks, tile->threads(), tile->shared_bytes(), "fwd");
      }
    }
  }
}

TEST(CpAsyncLaunchTest, Backward) {
  for (const bool deterministic : {false, true}) {
    for (const int kilobytes : kSharedLimits) {
      for (const Dims& dims : kDims) {
        const BwdTile* tile = tile_with(kBwdTiles, dims.wider(), kilobytes);
        SCOPED_TRACE(std::to_string(kilobytes) + " KB, head_dim " + std::to_string(dims.wider()));
        ASSERT_NE(tile, nullptr);
        const Shape shape = shape_with(dims);
        const Launched run = launched_by<Backward>("cp_async", CUFLASH_R_16F, kilobytes, shape, deterministic);
        const int64_t rows = int64_t{shape.batch} * shape.num_heads * shape.seqlen_q;
        const int64_t pitch = (dims.q + 15) / 16 * 16;
        EXPECT_EQ(run.workspace_bytes, padded(rows) + (deterministic ? 0 : padded(rows * pitch)));
        ASSERT_EQ(run.launches.size(), 3u);
        const int64_t keys = num_tiles(shape.batch, shape.num_heads_k, ceil_div(shape.seqlen_k, tile->block_n));
        const int64_t queries = num_tiles(shape.batch, shape.num_heads, ceil_div(shape.seqlen_q, tile->block_n));
        expect_row_launch<uint16_t>(run.launches[0], shape, dims.v, "bwd_delta");
        expect_launch(run.launches[1], keys, tile->threads(), tile->shared_bytes(), "bwd");
        if (deterministic) {
          expect_launch(run.launches[2], queries, tile->dq_threads(), tile->dq_shared_bytes(), "bwd_dq");
        } else {
          expect_row_launch<uint16_t>(run.launches[2], shape, dims.q, "bwd_finish_dq");
        }
      }
    }
  }
}

}  // namespace
}  // namespace cuflash::cp_async
