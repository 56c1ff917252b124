// SPDX-License-Identifier: MIT
// What reaches the GPU: launch shapes at extreme extents, the stream, empty problems, preload, device properties.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "calls.h"
#include "fake_runtime.h"

namespace cuflash::test {
namespace {

using Forward = cuflashForwardParams_t;
using Backward = cuflashBackwardParams_t;

// Runs a problem of fake addresses, with a workspace as large as it asks for.
template <class Params>
cuflashStatus_t run_unbacked(
    const Shape& shape,
    cuflashDataType_t dtype = CUFLASH_R_16F,
    const char* kernel = nullptr,
    bool deterministic = false
) {
  Params p = shape_params<Params>(CUFLASH_DEVICE_CUDA, shape, dtype);
  p.kernel = kernel;
  if constexpr (std::is_same_v<Params, Backward>) p.deterministic = deterministic;
  set_fake_addresses(&p);
  size_t bytes = 0;
  if (const cuflashStatus_t status = Api<Params>::workspace_size(&p, &bytes); status != CUFLASH_STATUS_SUCCESS) {
    return status;
  }
  return Api<Params>::run(&p, reinterpret_cast<void*>(uintptr_t{1} << 58), bytes, nullptr);
}

// Rooms differ in dtypes and alignment.
template <class Params>
bool is_served(const char* kernel, const Shape& shape, cuflashDataType_t dtype, bool deterministic = false) {
  Params p = shape_params<Params>(CUFLASH_DEVICE_CUDA, shape, dtype);
  if constexpr (std::is_same_v<Params, Backward>) p.deterministic = deterministic;
  p.kernel = kernel;
  size_t bytes = 0;
  const cuflashStatus_t status = Api<Params>::workspace_size(&p, &bytes);
  EXPECT_TRUE(status == CUFLASH_STATUS_SUCCESS || status == CUFLASH_STATUS_NOT_SUPPORTED);
  return status == CUFLASH_STATUS_SUCCESS;
}

void expect_valid_launches(const std::string& what) {
  EXPECT_FALSE(fake_runtime().launches().empty()) << what;
  for (const LaunchRecord& launch : fake_runtime().launches()) {
    EXPECT_GE(launch.grid.x, 1u) << what;
    EXPECT_LE(launch.grid.x, static_cast<unsigned>(INT32_MAX)) << what;
    EXPECT_EQ(launch.grid.y, 1u) << what;
    EXPECT_EQ(launch.grid.z, 1u) << what;
    EXPECT_EQ(launch.block.y, 1u) << what;
    EXPECT_EQ(launch.block.z, 1u) << what;
    EXPECT_EQ(launch.block.x % 32, 0u) << what;
  }
}

template <class Params>
class LaunchTest : public ::testing::Test {
 protected:
  void SetUp() override { fake_runtime().reset(); }
};

using BothParams = ::testing::Types<Forward, Backward>;
TYPED_TEST_SUITE(LaunchTest, BothParams);

// Packed sequences with a bound far above: no entry is longer than all of them together.
TYPED_TEST(LaunchTest, PackedEntriesAreAtMostAllRows) {
  static const int32_t kCuSeqlens[3] = {0, 3, 8};
  SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  call.params.seqlen_q = call.params.seqlen_k = 8;
  call.params.cu_seqlens_q = call.params.cu_seqlens_k = kCuSeqlens;
  call.params.total_q = call.params.total_k = 8;
  const auto launched = [&](int32_t seqlen) {
    call.params.seqlen_q = call.params.seqlen_k = seqlen;
    fake_runtime().reset();
    EXPECT_EQ(call.run(), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
    std::vector<unsigned> blocks;
    for (const LaunchRecord& launch : fake_runtime().launches()) blocks.push_back(launch.grid.x);
    return blocks;
  };
  const std::vector<unsigned> tight = launched(8);
  ASSERT_FALSE(tight.empty());
  EXPECT_EQ(tight[0], 8u) << "2 entries, 4 heads, one block of rows each";
  EXPECT_EQ(launched(INT32_MAX), tight);
  EXPECT_EQ(launched(1000), tight);
}

TYPED_TEST(LaunchTest, GridsHoldAtEveryExtreme) {
  constexpr int32_t kMax = INT32_MAX;
  const std::vector<Shape> shapes = {
      {1, 1, 1, 1, 1, 1, 1},
      {kMax, 1, 1, 1, 1, 1, 1},
      {1, kMax, kMax, 1, 1, 1, 1},
      {1, kMax, 1, 1, 1, 1, 1},
      {1, 1, 1, kMax, 1, 1, 1},
      {1, 1, 1, 1, kMax, 1, 1},
      {1, 1, 1, kMax, kMax, 256, 256},
      {1, 8, 1, kMax, kMax, 64, 64},
      {kMax, 8, 8, 1, 1, 64, 64},
      {1 << 20, 1 << 10, 1 << 10, 1 << 10, 1 << 10, 128, 64},
      {70000, 3, 1, 2, 3, 72, 40},          // batch above 65,535
      {1, 71280, 71280, 1, 33728, 64, 64},  // heads above 65,535
      {3, 5, 1, 1 << 26, 1 << 20, 255, 1},
  };
  std::set<std::string> tried;
  for (const Shape& s : shapes) {
    for (const char* kernel : gpu_kernels<TypeParam>()) {
      if (!is_served<TypeParam>(kernel, s, CUFLASH_R_16F)) continue;
      tried.insert(kernel);
      const std::string what = std::string(kernel) + ", batch " + std::to_string(s.batch) + ", num_heads " +
                               std::to_string(s.num_heads) + ", seqlen_q " + std::to_string(s.seqlen_q) +
                               ", seqlen_k " + std::to_string(s.seqlen_k);
      fake_runtime().reset();
      ASSERT_EQ(run_unbacked<TypeParam>(s, CUFLASH_R_16F, kernel), CUFLASH_STATUS_SUCCESS)
          << what << ": " << cuflashGetLastErrorMessage();
      expect_valid_launches(what);
    }
  }
  EXPECT_EQ(tried.size(), gpu_kernels<TypeParam>().size());
}

// With packed rows an entry may be as long as all of them, so that grids are counted by the product of batch and rows:
// products that leave no room for the size of a row are refused, whatever the strides are.
TYPED_TEST(LaunchTest, CountsOfRowsThatOverflowAreRefused) {
  struct Case {
    Shape shape;
    bool packed_q;
    bool packed_k;
    const char* message;
  };
  constexpr int32_t kMax = INT32_MAX;
  const Case cases[] = {
      {{kMax, kMax, kMax, kMax, 1, 1, 1},
       true,
       true,
       "batch (2147483647) x num_heads (2147483647) x seqlen_q (2147483647) is too large: it must be below 2^57"},
      {{1 << 20, 1 << 10, 1 << 10, 1 << 27, 1, 1, 1},
       true,
       true,
       "batch (1048576) x num_heads (1024) x seqlen_q (134217728) is too large: it must be below 2^57"},
      {{kMax, kMax, kMax, 0, kMax, 1, 1},
       false,
       true,
       "batch (2147483647) x num_heads_k (2147483647) x seqlen_k (2147483647) is too large: it must be below 2^57"},
      {{1 << 20, 1 << 10, 1 << 10, 1, 1 << 27, 1, 1},
       false,
       false,
       "batch (1048576) x num_heads_k (1024) x seqlen_k (134217728) is too large: it must be below 2^57"},
  };
  static int32_t cu_seqlens[1];
  for (const Case& c : cases) {
    TypeParam p = shape_params<TypeParam>(CUFLASH_DEVICE_CUDA, {1, 1, 1, 1, 1, 1, 1}, CUFLASH_R_16F);
    p.batch = c.shape.batch;
    p.num_heads = c.shape.num_heads;
    p.num_heads_k = c.shape.num_heads_k;
    p.seqlen_q = c.shape.seqlen_q;
    p.seqlen_k = c.shape.seqlen_k;
    p.cu_seqlens_q = c.packed_q ? cu_seqlens : nullptr;
    p.cu_seqlens_k = c.packed_k ? cu_seqlens : nullptr;
    p.total_q = c.packed_q ? c.shape.seqlen_q : 0;
    p.total_k = c.packed_k ? c.shape.seqlen_k : 0;
    size_t bytes = 0;
    EXPECT_EQ(Api<TypeParam>::workspace_size(&p, &bytes), CUFLASH_STATUS_INVALID_ARGUMENT);
    EXPECT_STREQ(cuflashGetLastErrorMessage(), c.message);
  }
}

TYPED_TEST(LaunchTest, PackedTensorsOfTooManyRowsAreRefused) {
  static int32_t cu_seqlens[1];
  TypeParam p = shape_params<TypeParam>(CUFLASH_DEVICE_CUDA, {1, INT32_MAX, INT32_MAX, 1, 1, 1, 1}, CUFLASH_R_16F);
  p.cu_seqlens_q = cu_seqlens;
  p.total_q = INT32_MAX;
  size_t bytes = 0;
  EXPECT_EQ(Api<TypeParam>::workspace_size(&p, &bytes), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(
      cuflashGetLastErrorMessage(),
      "batch (1) x num_heads (2147483647) x total_q (2147483647) is too large: it must be below 2^57"
  );
}

// More tiles than a grid can hold: as many blocks as there can be, which loop.
TYPED_TEST(LaunchTest, BoundsMayExceedAGrid) {
  static int32_t cu_seqlens[1];
  TypeParam p = shape_params<TypeParam>(CUFLASH_DEVICE_CUDA, {1, 1, 1, 1, 1, 8, 8}, CUFLASH_R_16F);
  p.batch = 1 << 24;
  p.seqlen_q = p.seqlen_k = INT32_MAX;
  p.cu_seqlens_q = p.cu_seqlens_k = cu_seqlens;
  p.total_q = p.total_k = 1 << 20;
  set_fake_addresses(&p);
  for (const char* kernel : gpu_kernels<TypeParam>()) {
    fake_runtime().reset();
    p.kernel = kernel;
    size_t bytes = 0;
    const bool stays = std::string(kernel) == "sm90";  // one block per SM, for all tiles
    if (stays && Api<TypeParam>::kOperation == CUFLASH_OP_BACKWARD) {
      EXPECT_EQ(Api<TypeParam>::workspace_size(&p, &bytes), CUFLASH_STATUS_NOT_SUPPORTED);
      continue;  // does not count so far
    }
    ASSERT_EQ(Api<TypeParam>::workspace_size(&p, &bytes), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
    ASSERT_EQ(
        Api<TypeParam>::run(&p, reinterpret_cast<void*>(uintptr_t{1} << 58), bytes, nullptr), CUFLASH_STATUS_SUCCESS
    ) << cuflashGetLastErrorMessage();
    ASSERT_FALSE(fake_runtime().launches().empty());
    for (const LaunchRecord& launch : fake_runtime().launches()) {
      EXPECT_EQ(launch.grid.x, static_cast<unsigned>(stays ? 132 : INT32_MAX)) << kernel;
    }
  }
}

TYPED_TEST(LaunchTest, TheStreamIsPassedOn) {
  const SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  for (const uintptr_t handle : {uintptr_t{0}, uintptr_t{1}, uintptr_t{0x1234560}}) {
    fake_runtime().reset();
    const auto stream = reinterpret_cast<cuflashStream_t>(handle);
    ASSERT_EQ(call.run(stream), CUFLASH_STATUS_SUCCESS);
    ASSERT_FALSE(fake_runtime().launches().empty());
    for (const LaunchRecord& launch : fake_runtime().launches()) EXPECT_EQ(launch.stream, stream);
  }
}

TYPED_TEST(LaunchTest, EmptyProblemsLaunchNothingAndNeedNoDevice) {
  for (const Shape& shape :
       {Shape{.batch = 0}, Shape{.num_heads = 0, .num_heads_k = 0}, Shape{.seqlen_q = 0, .seqlen_k = 0}}) {
    fake_runtime().reset();
    fake_runtime().fail_all(cudaErrorInsufficientDriver);
    const TypeParam p = shape_params<TypeParam>(CUFLASH_DEVICE_CUDA, shape);  // all data pointers null
    size_t bytes = 1;
    EXPECT_EQ(Api<TypeParam>::workspace_size(&p, &bytes), CUFLASH_STATUS_SUCCESS);
    EXPECT_EQ(bytes, 0u);
    EXPECT_EQ(Api<TypeParam>::run(&p, nullptr, 0, nullptr), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
    EXPECT_EQ(Api<TypeParam>::preload(&p), CUFLASH_STATUS_SUCCESS);
    EXPECT_EQ(fake_runtime().num_calls(), 0);
  }
}

constexpr cuflashDataType_t kDTypes[] = {CUFLASH_R_32F, CUFLASH_R_16F, CUFLASH_R_16BF};

// The kernels that a small problem launches, in order.
template <class Params>
std::vector<const void*> launched_kernels(
    int32_t head_dim, cuflashDataType_t dtype, const char* kernel, bool deterministic = false
) {
  fake_runtime().reset();
  EXPECT_EQ(
      run_unbacked<Params>({2, 4, 2, 5, 7, head_dim, head_dim}, dtype, kernel, deterministic), CUFLASH_STATUS_SUCCESS
  ) << cuflashGetLastErrorMessage();
  std::vector<const void*> kernels;
  for (const LaunchRecord& launch : fake_runtime().launches()) kernels.push_back(launch.kernel);
  return kernels;
}

TYPED_TEST(LaunchTest, PreloadLoadsWhatRunLaunches) {
  std::set<std::string> tried;
  for (const char* kernel : gpu_kernels<TypeParam>()) {
    for (const bool deterministic : {false, true}) {
      for (const cuflashDataType_t dtype : kDTypes) {
        for (const int32_t head_dim : {1, 32, 33, 64, 65, 96, 128, 129, 192, 256}) {
          const Shape shape = {2, 4, 2, 5, 7, head_dim, head_dim};
          if (!is_served<TypeParam>(kernel, shape, dtype, deterministic)) continue;
          tried.insert(kernel);
          const auto launched = launched_kernels<TypeParam>(head_dim, dtype, kernel, deterministic);
          fake_runtime().reset();
          auto p = shape_params<TypeParam>(CUFLASH_DEVICE_CUDA, shape, dtype);
          p.kernel = kernel;
          if constexpr (std::is_same_v<TypeParam, Backward>) p.deterministic = deterministic;
          ASSERT_EQ(Api<TypeParam>::preload(&p), CUFLASH_STATUS_SUCCESS);
          const auto loaded = fake_runtime().loaded_kernels();
          EXPECT_TRUE(fake_runtime().launches().empty());
          EXPECT_EQ(std::set(loaded.begin(), loaded.end()), std::set(launched.begin(), launched.end()))
              << kernel << ", head_dim " << head_dim;
        }
      }
    }
  }
  EXPECT_EQ(tried.size(), gpu_kernels<TypeParam>().size());
}

// The same without those that go over query rows once and need no shared memory: rooms and capacities may share them.
template <class Params>
std::vector<const void*> main_kernels(int32_t head_dim, cuflashDataType_t dtype, const char* kernel) {
  launched_kernels<Params>(head_dim, dtype, kernel);
  std::vector<const void*> kernels;
  for (const LaunchRecord& launch : fake_runtime().launches()) {
    if (launch.shared_bytes > 0) kernels.push_back(launch.kernel);
  }
  EXPECT_FALSE(kernels.empty());
  return kernels;
}

TYPED_TEST(LaunchTest, ScalarHasKernelsForEveryDTypeAndCapacity) {
  std::set<const void*> kernels;
  for (const cuflashDataType_t dtype : kDTypes) {
    for (const int32_t head_dim : {32, 64, 128, 256}) {
      for (const void* kernel : main_kernels<TypeParam>(head_dim, dtype, "scalar")) {
        EXPECT_TRUE(kernels.insert(kernel).second) << "dtype " << dtype << ", head_dim " << head_dim;
      }
    }
  }
}

TYPED_TEST(LaunchTest, RegisterTiledHasKernelsForEveryCapacityThatServeAllDTypes) {
  std::set<const void*> kernels;
  for (const int32_t head_dim : {32, 64, 128, 256}) {
    const auto of_fp32 = main_kernels<TypeParam>(head_dim, CUFLASH_R_32F, "register_tiled");
    for (const void* kernel : of_fp32) EXPECT_TRUE(kernels.insert(kernel).second) << "head_dim " << head_dim;
    EXPECT_EQ(main_kernels<TypeParam>(head_dim, CUFLASH_R_16F, "register_tiled"), of_fp32);
    EXPECT_EQ(main_kernels<TypeParam>(head_dim, CUFLASH_R_16BF, "register_tiled"), of_fp32);
  }
}

TYPED_TEST(LaunchTest, PropertiesAreReadOncePerDevice) {
  const SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  for (int device = 0; device < 3; ++device) {
    fake_runtime().reset();
    fake_runtime().set_device({}, fresh_ordinal());
    for (int repeat = 0; repeat < 5; ++repeat) ASSERT_EQ(call.run(), CUFLASH_STATUS_SUCCESS);
    EXPECT_EQ(fake_runtime().num_attribute_queries(), 4) << "sm major and minor, SMs, shared memory";
  }
}

TYPED_TEST(LaunchTest, TheCurrentDeviceDecides) {
  const SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  const int old_gpu = fresh_ordinal(), new_gpu = fresh_ordinal();
  for (int repeat = 0; repeat < 2; ++repeat) {
    fake_runtime().set_device({.sm = 60}, old_gpu);
    EXPECT_EQ(call.run(), CUFLASH_STATUS_NOT_SUPPORTED);
    fake_runtime().set_device({.sm = 90}, new_gpu);
    EXPECT_EQ(call.run(), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
  }
}

// All gradients are always written: without queries the key gradients are zeros, without keys dq is.
TEST(BackwardLaunchTest, GradientsOfAnEmptySideAreWritten) {
  for (const char* kernel : gpu_kernels<Backward>()) {
    for (const bool deterministic : {false, true}) {
      const auto expect_launches = [&](const Shape& shape, size_t count, const std::string& what) {
        SCOPED_TRACE(std::string(kernel) + (deterministic ? ", deterministic" : ""));
        fake_runtime().reset();
        ASSERT_EQ(run_unbacked<Backward>(shape, CUFLASH_R_16F, kernel, deterministic), CUFLASH_STATUS_SUCCESS)
            << cuflashGetLastErrorMessage();
        expect_valid_launches(what);
        EXPECT_EQ(fake_runtime().launches().size(), count) << what;
      };
      const size_t counter = std::string(kernel) == "sm90" ? 1 : 0;  // of tiles is cleared first
      expect_launches({.seqlen_q = 0}, 1 + counter, "no queries: dk and dv");
      expect_launches({.seqlen_k = 0}, 2, "no keys: delta and dq");
      expect_launches({.num_heads = 0, .num_heads_k = 2}, 1 + counter, "no query heads: dk and dv");
    }
  }
}

TEST(BackwardLaunchTest, OnTheHostToo) {
  const SmallCall<Backward> no_queries(CUFLASH_DEVICE_HOST, {.seqlen_q = 0});
  ASSERT_EQ(no_queries.run(), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
  const SmallCall<Backward> no_keys(CUFLASH_DEVICE_HOST, {.seqlen_k = 0});
  ASSERT_EQ(no_keys.run(), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
  for (const SmallCall<Backward>* call : {&no_queries, &no_keys}) {
    for (const Buffer& gradient : call->outputs()) {
      for (size_t i = 0; i < gradient.bytes() / sizeof(float); ++i) ASSERT_EQ(gradient.as<float>()[i], 0.0f);
    }
  }
}

// Rows without a key get zeros and -inf: the launch must happen.
TEST(ForwardLaunchTest, WithoutKeysTheOutputIsWritten) {
  for (const char* kernel : gpu_kernels<Forward>()) {
    fake_runtime().reset();
    ASSERT_EQ(run_unbacked<Forward>({.seqlen_k = 0}, CUFLASH_R_16F, kernel), CUFLASH_STATUS_SUCCESS)
        << cuflashGetLastErrorMessage();
    expect_valid_launches("no keys");
  }
}

}  // namespace
}  // namespace cuflash::test
