// SPDX-License-Identifier: MIT
// Real faults of other attention libraries that have to do with the device: it is injected here. The others are in
// tests/conformance/known_faults_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "calls.h"
#include "fake_runtime.h"

namespace cuflash::test {
namespace {

template <class Params>
class KnownFaultsTest : public ::testing::Test {
 protected:
  void SetUp() override { fake_runtime().reset(); }
};

using BothParams = ::testing::Types<cuflashForwardParams_t, cuflashBackwardParams_t>;
TYPED_TEST_SUITE(KnownFaultsTest, BothParams);

// The names of all GPU kernels of the operation.
template <class Params>
std::vector<std::string> gpu_kernels() {
  constexpr bool kForward = std::is_same_v<Params, cuflashForwardParams_t>;
  std::vector<std::string> names;
  for (int32_t index = 0; index < cuflashGetKernelCount(); ++index) {
    cuflashKernelInfo_t info = {};
    info.struct_size = sizeof(info);
    EXPECT_EQ(cuflashGetKernelInfo(index, &info), CUFLASH_STATUS_SUCCESS);
    const bool wanted = info.operation == (kForward ? CUFLASH_OP_FORWARD : CUFLASH_OP_BACKWARD);
    if (wanted && info.device == CUFLASH_DEVICE_CUDA) names.push_back(info.name);
  }
  return names;
}

// Runs the call with the kernel and as much workspace as it asks for.
template <class Params>
cuflashStatus_t run_forced(SmallCall<Params>* call, const char* kernel) {
  call->params.kernel = kernel;
  size_t bytes = 0;
  if (const cuflashStatus_t status = call->workspace_size(&bytes); status != CUFLASH_STATUS_SUCCESS) return status;
  call->workspace = Buffer(bytes);
  return call->run();
}

size_t largest_shared_bytes() {
  size_t largest = 0;
  for (const LaunchRecord& launch : fake_runtime().launches()) largest = std::max(largest, launch.shared_bytes);
  return largest;
}

// A kernel fits the shared memory of the GPU at hand or refuses with a reason; it is never the launch that fails. The
// fake runtime refuses, as CUDA does, what is above the limit or was not allowed before.
TYPED_TEST(KnownFaultsTest, InvalidValueOnGpusWithLessSharedMemory) {
  constexpr int kSms[] = {75, 80, 86, 89, 90, 100, 120};
  constexpr int kSharedKilobytes[] = {64, 99, 163, 227};
  constexpr cuflashDataType_t kDTypes[] = {CUFLASH_R_32F, CUFLASH_R_16F, CUFLASH_R_16BF};
  for (const int kilobytes : kSharedKilobytes) {
    int served = 0;
    for (const std::string& kernel : gpu_kernels<TypeParam>()) {
      for (const int sm : kSms) {
        for (const cuflashDataType_t dtype : kDTypes) {
          for (const int32_t head_dim : {1, 32, 64, 72, 96, 128, 160, 192, 256}) {
            SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA, {.head_dim = head_dim, .head_dim_v = head_dim});
            call.params.dtype = dtype;
            fake_runtime().reset();
            fake_runtime().set_device({.sm = sm, .num_sms = 40, .max_shared_bytes = kilobytes * 1024});
            const cuflashStatus_t status = run_forced(&call, kernel.c_str());
            const std::string what = kernel + ", sm_" + std::to_string(sm) + ", " + std::to_string(kilobytes) +
                                     " KB, head_dim " + std::to_string(head_dim) + ": " + cuflashGetLastErrorMessage();
            if (status == CUFLASH_STATUS_NOT_SUPPORTED) continue;  // this binary may hold no code for the GPU
            ASSERT_EQ(status, CUFLASH_STATUS_SUCCESS) << what;
            ASSERT_FALSE(fake_runtime().launches().empty()) << what;
            ASSERT_LE(largest_shared_bytes(), static_cast<size_t>(kilobytes) * 1024) << what;
            ++served;
          }
        }
      }
    }
    EXPECT_GT(served, 0) << kilobytes << " KB: refused by every kernel for every GPU";
  }
}

// The current device decides, at every call anew: what was learnt of one device is not used for another.
TYPED_TEST(KnownFaultsTest, LaunchesForDevice0WithTensorsOnDevice1) {
  const int first = fresh_ordinal(), second = fresh_ordinal();
  const FakeDevice large = {.max_shared_bytes = 227 * 1024}, small = {.max_shared_bytes = 64 * 1024};
  const auto stream = reinterpret_cast<cuflashStream_t>(uintptr_t{0x100});
  const auto launch_on = [&](const FakeDevice& device, int ordinal) {
    SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA, {.head_dim = 256, .head_dim_v = 256});
    fake_runtime().reset();
    fake_runtime().set_device(device, ordinal);
    size_t bytes = 0;
    EXPECT_EQ(call.workspace_size(&bytes), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
    call.workspace = Buffer(bytes);
    EXPECT_EQ(call.run(stream), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
    for (const LaunchRecord& launch : fake_runtime().launches()) EXPECT_EQ(launch.stream, stream);
    EXPECT_FALSE(fake_runtime().launches().empty());
    return largest_shared_bytes();
  };
  const size_t on_first = launch_on(large, first);
  EXPECT_LE(launch_on(small, second), 64u * 1024) << "planned for another device";
  EXPECT_GT(fake_runtime().num_attribute_queries(), 0) << "nothing was asked of the second device";
  EXPECT_EQ(launch_on(large, first), on_first);
  EXPECT_EQ(fake_runtime().num_attribute_queries(), 0) << "the first device is known";
}

}  // namespace
}  // namespace cuflash::test
