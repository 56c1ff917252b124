// SPDX-License-Identifier: MIT
// The room wmma on the host's side: its tile tables against the shared memory of every GPU, how fragments are dealt to
// warps, its workspace, and the launches that follow from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "dispatch_cases.h"
#include "kernels/wmma/family.h"
#include "kernels/wmma/launchers.h"
#include "kernels/wmma/tiles.h"
#include "tile_tables.h"

namespace cuflash::wmma {
namespace {

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

// Every fragment of a product belongs to one warp.
TEST(TilesTest, FragmentsAreDealtOnce) {
  for (const BwdTile& tile : kBwdTiles) {
    const std::pair<int, int> products[] = {
        {tile.block_own, tile.block_step}, {tile.block_own, tile.head_dim}, {tile.block_step, tile.head_dim}};
    for (const auto& [rows, cols] : products) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols) + " by " + std::to_string(tile.warps));
      const WarpBlock block = deal(rows, cols, tile.warps);
      EXPECT_LE(block.warps, tile.warps);
      std::set<std::pair<int, int>> dealt;
      for (int warp = 0; warp < block.warps; ++warp) {
        for (int i = 0; i < block.rows * block.cols; ++i) {
          const int row = block.first_row(warp) + i / block.cols * kSide;
          const int col = block.first_col(warp) + i % block.cols * kSide;
          EXPECT_TRUE(row < rows && col < cols) << "warp " << warp;
          EXPECT_TRUE(dealt.emplace(row, col).second) << "warp " << warp;
        }
      }
      EXPECT_EQ(dealt.size(), static_cast<size_t>(rows / kSide * (cols / kSide)));
    }
  }
}

struct Dims {
  int32_t q;
  int32_t v;
  int wider() const { return std::max(q, v); }
};
constexpr Dims kDims[] = {{1, 1}, {32, 32}, {33, 8}, {64, 64}, {40, 100}, {128, 128}, {129, 1}, {16, 256}};
constexpr cuflashDataType_t kDTypes[] = {CUFLASH_R_16F, CUFLASH_R_16BF};

Shape shape_with(const Dims& dims) { return {2, 4, 2, 150, 70, dims.q, dims.v}; }

TEST(WmmaLaunchTest, Forward) {
  for (const int kilobytes : kSharedLimits) {
    for (const Dims& dims : kDims) {
      for (const cuflashDataType_t dtype : kDTypes) {
        const FwdTile* tile = tile_with(kFwdTiles, dims.wider(), kilobytes);
        SCOPED_TRACE(std::to_string(kilobytes) + " KB, head_dim " + std::to_string(dims.wider()));
        ASSERT_NE(tile, nullptr);
        const Shape shape = shape_with(dims);
        const Launched run = launched_by<Forward>("wmma", dtype, kilobytes, shape);
        EXPECT_EQ(run.workspace_bytes, 0u);
        ASSERT_EQ(run.launches.size(), 1u);
        const int64_t blocks = num_tiles(shape.batch, shape.num_heads, ceil_div(shape.seqlen_q, tile->block_m));
        expect_launch(run.launches[0], blocks, tile->threads(), tile->shared_bytes(), "fwd");
      }
    }
  }
}

TEST(WmmaLaunchTest, Backward) {
  for (const bool deterministic : {false, true}) {
    for (const int kilobytes : kSharedLimits) {
      for (const Dims& dims : kDims) {
        const BwdTile* tile = tile_with(kBwdTiles, dims.wider(), kilobytes);
        SCOPED_TRACE(std::to_string(kilobytes) + " KB, head_dim " + std::to_string(dims.wider()));
        ASSERT_NE(tile, nullptr);
        const Shape shape = shape_with(dims);
        const Launched run = launched_by<Backward>("wmma", CUFLASH_R_16F, kilobytes, shape, deterministic);
        const int64_t rows = int64_t{shape.batch} * shape.num_heads * shape.seqlen_q;
        const int64_t pitch = (dims.q + 3) / 4 * 4;
        EXPECT_EQ(run.workspace_bytes, padded(rows) + (deterministic ? 0 : padded(rows * pitch)));
        ASSERT_EQ(run.launches.size(), 3u);
        const int64_t keys = num_tiles(shape.batch, shape.num_heads_k, ceil_div(shape.seqlen_k, tile->block_own));
        const int64_t queries = num_tiles(shape.batch, shape.num_heads, ceil_div(shape.seqlen_q, tile->block_own));
        expect_row_launch<uint16_t>(run.launches[0], shape, dims.v, "bwd_delta");
        expect_launch(run.launches[1], keys, tile->threads(), tile->shared_bytes(), "bwd");
        if (deterministic) {
          expect_launch(run.launches[2], queries, tile->threads(), tile->shared_bytes(), "bwd_dq");
        } else {
          expect_row_launch<uint16_t>(run.launches[2], shape, dims.q, "bwd_finish_dq");
        }
      }
    }
  }
}

// bf16 fragments begin at sm_80; fp16 runs before.
template <class Problem>
Verdict verdict(const KernelFamily<Problem>& family, cuflashDataType_t dtype, int32_t sm) {
  const auto plain = test::dispatch_variants<test::ParamsOf<Problem>>().front();
  return family.refine(test::dispatch_problem<Problem>(CUFLASH_DEVICE_CUDA, dtype, 64, plain), test::gpu(sm)).verdict;
}

TEST(WmmaSelectionTest, Bf16NeedsSm80) {
  for (const int32_t sm : {75, 80}) {
    EXPECT_EQ(verdict(kForward, CUFLASH_R_16F, sm), Verdict::kAccept);
    EXPECT_EQ(verdict(kBackward, CUFLASH_R_16F, sm), Verdict::kAccept);
    const Verdict of_bf16 = sm < 80 ? Verdict::kCannot : Verdict::kAccept;
    EXPECT_EQ(verdict(kForward, CUFLASH_R_16BF, sm), of_bf16);
    EXPECT_EQ(verdict(kBackward, CUFLASH_R_16BF, sm), of_bf16);
  }
}

}  // namespace
}  // namespace cuflash::wmma
