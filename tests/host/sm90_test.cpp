// SPDX-License-Identifier: MIT
// The room sm90 on the host's side: its tile table, what it refuses, its launches, and the tensor maps that go with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/sm90/family.h"
#include "kernels/sm90/swizzle.h"
#include "kernels/sm90/tiles.h"
#include "tile_tables.h"

namespace cuflash::sm90 {
namespace {

using test::fake_runtime;
using test::Launched;
using test::launched_by;
using test::Shape;
using test::SmallCall;
using test::tile_with;
using Forward = cuflashForwardParams_t;
using Backward = cuflashBackwardParams_t;

constexpr int kKilobytes = 227;  // that a block may have on sm_90
constexpr cuflashDataType_t kDTypes[] = {CUFLASH_R_16F, CUFLASH_R_16BF};

TEST(TilesTest, RowsAreUsed) {
  int capacity = 0;
  for (const FwdTile& tile : kFwdTiles) {
    EXPECT_GT(tile.head_dim, capacity) << "rows ascend";
    capacity = tile.head_dim;
    EXPECT_EQ(tile_with(kFwdTiles, tile.head_dim, kKilobytes), &tile);
    EXPECT_EQ(tile.shared_bytes() % 16, 0u);
    for (const int offset : {tile.q_offset(), tile.k_offset(), tile.v_offset(), tile.o_offset()}) {
      EXPECT_EQ(offset % kAtomBytes, 0) << "tiles begin where the swizzle does";
    }
    EXPECT_EQ(tile.q_bytes() % kAtomBytes, 0);
    EXPECT_EQ(tile.kv_bytes() % kAtomBytes, 0);
    EXPECT_EQ(tile.o_bytes() % kAtomBytes, 0);
  }
  EXPECT_EQ(capacity, kMaxHeadDim);
}

// A table that could not run is no table: registers and shared memory.
TEST(TilesTest, WhatDoesNotFitIsNotValid) {
  const FwdTile good = kFwdTiles[1];
  ASSERT_TRUE(is_valid(good));
  const auto changed = [&](auto&& change) {
    FwdTile tile = good;
    change(tile);
    return is_valid(tile);
  };
  EXPECT_FALSE(changed([](FwdTile& t) { t.consumer_registers += 8; })) << "setmaxnreg would wait for ever";
  EXPECT_FALSE(changed([](FwdTile& t) { t.stages += 1; })) << "shared memory";
  EXPECT_FALSE(changed([](FwdTile& t) { t.block_n += 8; })) << "products are 16 deep";
  EXPECT_FALSE(changed([](FwdTile& t) { t.o_columns = 32; })) << "boxes are 64 columns wide";
}

TEST(TilesTest, RowsOfTheBackwardPassAreUsed) {
  int capacity = 0;
  for (const BwdTile& tile : kBwdTiles) {
    EXPECT_GT(tile.head_dim, capacity) << "rows ascend";
    capacity = tile.head_dim;
    EXPECT_EQ(tile_with(kBwdTiles, tile.head_dim, kKilobytes), &tile);
    for (const int offset : {tile.v_offset(), tile.q_offset(), tile.dout_offset(), tile.ds_offset()}) {
      EXPECT_EQ(offset % kAtomBytes, 0) << "tiles begin where the swizzle does";
    }
    EXPECT_EQ(tile.state_offset() % 16, 0);
  }
}

TEST(TilesTest, WhatDoesNotFitBackwardIsNotValid) {
  const BwdTile good = kBwdTiles[1];
  ASSERT_TRUE(is_valid(good));
  const auto changed = [&](auto&& change) {
    BwdTile tile = good;
    change(tile);
    return is_valid(tile);
  };
  EXPECT_FALSE(changed([](BwdTile& t) { t.consumer_registers += 8; })) << "setmaxnreg would wait for ever";
  EXPECT_FALSE(changed([](BwdTile& t) { t.dout_stages += 1; })) << "shared memory";
  EXPECT_FALSE(changed([](BwdTile& t) { t.dout_stages = 1; })) << "two warpgroups half a step apart read two";
  EXPECT_FALSE(changed([](BwdTile& t) { t.block_m = 128; })) << "dq is 64 rows and columns of a warpgroup";
  EXPECT_FALSE(changed([](BwdTile& t) { t.head_dim = 256; })) << "registers, shared memory";
  EXPECT_FALSE(changed([](BwdTile& t) { t.block_n = 64; })) << "roles are split at head_dim 256 alone";
}

TEST(TilesTest, WhatDoesNotFitSplitRolesIsNotValid) {
  const BwdTile good = kBwdTiles[2];
  ASSERT_TRUE(is_valid(good));
  ASSERT_TRUE(good.splits_roles());
  const auto changed = [&](auto&& change) {
    BwdTile tile = good;
    change(tile);
    return is_valid(tile);
  };
  EXPECT_FALSE(changed([](BwdTile& t) { t.dout_stages += 1; })) << "shared memory";
  EXPECT_FALSE(changed([](BwdTile& t) { t.q_stages = 1; })) << "scores are a step ahead of the sums of dk";
  EXPECT_FALSE(changed([](BwdTile& t) { t.block_m = 128; })) << "registers, shared memory";
  EXPECT_FALSE(changed([](BwdTile& t) { t.block_n = 128; })) << "the other kernel ends at head_dim 128";
}

struct Dims {
  int32_t q;
  int32_t v;
  int wider() const { return std::max(q, v); }
};
constexpr Dims kDims[] = {{8, 8}, {64, 64}, {40, 96}, {128, 128}, {136, 8}, {192, 128}, {16, 256}};

TEST(Sm90LaunchTest, OneBlockPerSmAtMost) {
  for (const Dims& dims : kDims) {
    for (const int32_t batch : {2, 200}) {
      for (const cuflashDataType_t dtype : kDTypes) {
        SCOPED_TRACE("head_dim " + std::to_string(dims.wider()) + ", batch " + std::to_string(batch));
        const FwdTile* tile = tile_with(kFwdTiles, dims.wider(), kKilobytes);
        ASSERT_NE(tile, nullptr);
        const Shape shape = {batch, 4, 2, 100, 70, dims.q, dims.v};
        const Launched run = launched_by<Forward>("sm90", dtype, kKilobytes, shape);
        EXPECT_EQ(run.workspace_bytes, 0u);
        ASSERT_EQ(run.launches.size(), 1u);
        const int64_t tiles = num_tiles(shape.batch, shape.num_heads, ceil_div(shape.seqlen_q, tile->block_m));
        test::expect_launch(
            run.launches[0], std::min<int64_t>(tiles, 132), tile->threads(), tile->shared_bytes(), "fwd"
        );
      }
    }
  }
}

TEST(Sm90LaunchTest, Backward) {
  for (const Dims& dims : {Dims{8, 8}, Dims{64, 64}, Dims{40, 96}, Dims{128, 64}, Dims{136, 256}}) {
    for (const int32_t seqlen_k : {130, 10000}) {
      SCOPED_TRACE("head_dim " + std::to_string(dims.wider()) + ", seqlen_k " + std::to_string(seqlen_k));
      const BwdTile* tile = tile_with(kBwdTiles, dims.wider(), kKilobytes);
      ASSERT_NE(tile, nullptr);
      const Shape shape = {2, 2, 1, 100, seqlen_k, dims.q, dims.v};
      const Launched run = launched_by<Backward>("sm90", CUFLASH_R_16BF, kKilobytes, shape);
      const int64_t rows = int64_t{shape.batch} * shape.num_heads * shape.seqlen_q;
      const int64_t queries = num_tiles(shape.batch, shape.num_heads, ceil_div(shape.seqlen_q, tile->block_m));
      const int64_t keys = num_tiles(shape.batch, shape.num_heads_k, ceil_div(shape.seqlen_k, tile->block_n));
      EXPECT_EQ(
          run.workspace_bytes,
          test::padded(rows) + test::padded(queries * tile->dq_floats()) + test::padded(queries * tile->kGroups) +
              test::padded(1)
      );
      ASSERT_EQ(run.launches.size(), 3u);
      test::expect_launch(run.launches[0], queries, kRowThreads, 0, "bwd_prepare");
      test::expect_launch(run.launches[1], std::min<int64_t>(keys, 132), tile->threads(), tile->shared_bytes(), "bwd");
      const size_t staged = static_cast<size_t>(tile->block_m) * (2 * (static_cast<size_t>(tile->head_dim) + 8) + 1);
      test::expect_launch(run.launches[2], queries, kRowThreads, staged, "bwd_finish");
    }
  }
}

// q, k, v and dout in this order.
TEST(Sm90LaunchTest, TensorMapsOfTheBackwardPass) {
  launched_by<Backward>("sm90", CUFLASH_R_16BF, kKilobytes, {3, 4, 2, 100, 70, 40, 96});
  const BwdTile& tile = *tile_with(kBwdTiles, 96, kKilobytes);
  const auto maps = fake_runtime().tensor_maps();
  ASSERT_EQ(maps.size(), 4u);
  const int block_m = tile.block_m, block_n = tile.block_n;
  const cuuint64_t head_dim[] = {40, 40, 96, 96}, rows[] = {100, 70, 70, 100};
  const int box_rows[] = {block_m, block_n, block_n, block_m};
  for (size_t i = 0; i < maps.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(maps[i].type, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
    EXPECT_EQ(maps[i].extents[0], head_dim[i]);
    EXPECT_EQ(maps[i].extents[1], rows[i]);
    EXPECT_EQ(maps[i].box[1], static_cast<cuuint32_t>(box_rows[i]));
  }
}

// q, k, v and o in this order.
TEST(Sm90LaunchTest, TensorMaps) {
  const Shape shape = {3, 4, 2, 100, 70, 40, 96};
  launched_by<Forward>("sm90", CUFLASH_R_16F, kKilobytes, shape);
  const FwdTile& tile = *tile_with(kFwdTiles, 96, kKilobytes);
  const auto maps = fake_runtime().tensor_maps();
  ASSERT_EQ(maps.size(), 4u);
  struct Expected {
    cuuint64_t head_dim, rows, heads;
    int box_rows;
  };
  const Expected expected[] = {
      {40, 100, 4, tile.block_m}, {40, 70, 2, tile.block_n}, {96, 70, 2, tile.block_n}, {96, 100, 4, kGroupRows}};
  for (size_t i = 0; i < maps.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(maps[i].type, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
    EXPECT_EQ(maps[i].extents[0], expected[i].head_dim);
    EXPECT_EQ(maps[i].extents[1], expected[i].rows);
    EXPECT_EQ(maps[i].extents[2], expected[i].heads);
    EXPECT_EQ(maps[i].extents[3], 3u);
    const cuuint64_t row_bytes = 2 * expected[i].head_dim * expected[i].heads;  // rows of all heads follow each other
    EXPECT_EQ(maps[i].strides[0], row_bytes);
    EXPECT_EQ(maps[i].strides[1], 2 * expected[i].head_dim);
    EXPECT_EQ(maps[i].strides[2], row_bytes * expected[i].rows);
    EXPECT_EQ(maps[i].box[0], 64u);
    EXPECT_EQ(maps[i].box[1], static_cast<cuuint32_t>(expected[i].box_rows));
    EXPECT_EQ(maps[i].box[2], 1u);
    EXPECT_EQ(maps[i].box[3], 1u);
  }
}

// A map needs an address and extents that are not 0, and a stride that is never used may be anything.
TEST(Sm90LaunchTest, MapsOfNothing) {
  launched_by<Forward>("sm90", CUFLASH_R_16BF, kKilobytes, {1, 1, 1, 5, 0, 64, 64});
  const auto maps = fake_runtime().tensor_maps();
  ASSERT_EQ(maps.size(), 4u);
  EXPECT_EQ(maps[1].extents[1], 1u);
  EXPECT_EQ(maps[1].data, maps[0].data);
  EXPECT_EQ(maps[0].strides[1], 16u);
  EXPECT_EQ(maps[0].strides[2], 16u);
}

// What the room refuses, cp_async serves.
template <class Params>
struct RefusalCase {
  std::function<void(Params&)> change;
  std::string reason;
  const char* verdict = "cannot";
};

template <class Params>
void expect_refusals(const std::vector<RefusalCase<Params>>& cases) {
  for (const auto& c : cases) {
    fake_runtime().reset();
    SmallCall<Params> call(CUFLASH_DEVICE_CUDA, {2, 4, 2, 100, 70, 64, 64});
    call.params.dtype = CUFLASH_R_16BF;
    c.change(call.params);
    std::string text;
    ASSERT_EQ(call.explain(&text), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
    EXPECT_NE(text.find("  sm90             " + std::string(c.verdict) + ": " + c.reason + "\n"), std::string::npos)
        << text;
  }
}

TEST(Sm90RefusalTest, Forward) {
  expect_refusals<Forward>({
      {[](Forward& p) { p.head_dim = 60; }, "head_dim (60) is not a multiple of 8: tensor copies are of 16 bytes"},
      {[](Forward& p) { p.head_dim_v = 62; }, "head_dim_v (62) is not a multiple of 8: tensor copies are of 16 bytes"},
      {[](Forward& p) { p.k.row_stride = 0; }, "k (0) has a stride of 0: tensor copies do not repeat rows"},
      {[](Forward& p) { p.v.head_stride = 0; }, "v (0) has a stride of 0: tensor copies do not repeat rows"},
      {[](Forward& p) { p.k.batch_stride = int64_t{1} << 39; },
       "k (1099511627776) is the bytes of a stride, above what tensor copies take"},
      {[](Forward& p) { p.q.data = static_cast<char*>(const_cast<void*>(p.q.data)) + 2; },
       "feature (unaligned) is not served"},
  });
}

Backward unbacked(const Shape& shape) {
  Backward p = test::shape_params<Backward>(CUFLASH_DEVICE_CUDA, shape, CUFLASH_R_16BF);
  test::set_fake_addresses(&p);
  return p;
}

TEST(Sm90RefusalTest, Backward) {
  expect_refusals<Backward>({
      {[](Backward& p) { p.head_dim = 60; }, "head_dim (60) is not a multiple of 8: tensor copies are of 16 bytes"},
      {[](Backward& p) { p.dout.row_stride = 0; }, "dout (0) has a stride of 0: tensor copies do not repeat rows"},
      {[](Backward& p) {
         p = unbacked({1 << 14, 4, 2, 5, 70, 64, 64});
       },
       "batch (16384) is of sequences that are too short: dq is summed in whole tiles of rows",
       "declines"},
      {[](Backward& p) {
         p = unbacked({1 << 16, 4, 2, 5, 70, 64, 64});
       },
       "batch (65536) is of sequences that are too short: dq is summed in whole tiles of rows"},
      {[](Backward& p) {  // of tiles of rows there are 2^56, of rows 2^63
         static const int32_t lengths[1] = {};
         p = unbacked({1 << 27, 1 << 29, 1, 1, 1, 64, 64});
         p.cu_seqlens_q = lengths;
         p.total_q = 1;
       },
       "batch (134217728) is of sequences that are too short: dq is summed in whole tiles of rows"},
      {[](Backward& p) {
         p = unbacked({1 << 20, 4, 2, 100, 1 << 20, 64, 64});
       },
       "seqlen_k (1048576) is more blocks of keys, over all heads, than 32 bits count"},
  });
}

TEST(Sm90RefusalTest, OtherGpus) {
  for (const int sm : {80, 89, 100, 120}) {
    fake_runtime().reset();
    fake_runtime().set_device({.sm = sm});
    SmallCall<Forward> call(CUFLASH_DEVICE_CUDA, {});
    call.params.dtype = CUFLASH_R_16BF;
    std::string text;
    call.explain(&text);
    const char* rule = sm < 90 ? "is older than this kernel needs" : "is newer than this kernel is written for";
    EXPECT_NE(text.find("sm90             cannot: device sm (" + std::to_string(sm) + ") " + rule), std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace cuflash::sm90
