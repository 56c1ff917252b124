// SPDX-License-Identifier: MIT
// Status strings, the thread's message, and what errors of the CUDA runtime become.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <thread>

#include "calls.h"
#include "fake_runtime.h"

namespace cuflash::test {
namespace {

std::string last_message() { return cuflashGetLastErrorMessage(); }

// Fails with a message of its own.
cuflashStatus_t failing_call() { return cuflashForwardParamsInit(nullptr, sizeof(cuflashForwardParams_t)); }

class StatusTest : public ::testing::Test {
 protected:
  void SetUp() override { fake_runtime().reset(); }
};

TEST_F(StatusTest, EveryStatusHasItsName) {
  EXPECT_STREQ(cuflashGetStatusString(CUFLASH_STATUS_SUCCESS), "CUFLASH_STATUS_SUCCESS");
  EXPECT_STREQ(cuflashGetStatusString(CUFLASH_STATUS_INVALID_ARGUMENT), "CUFLASH_STATUS_INVALID_ARGUMENT");
  EXPECT_STREQ(cuflashGetStatusString(CUFLASH_STATUS_NOT_SUPPORTED), "CUFLASH_STATUS_NOT_SUPPORTED");
  EXPECT_STREQ(cuflashGetStatusString(CUFLASH_STATUS_WORKSPACE_TOO_SMALL), "CUFLASH_STATUS_WORKSPACE_TOO_SMALL");
  EXPECT_STREQ(cuflashGetStatusString(CUFLASH_STATUS_CUDA_ERROR), "CUFLASH_STATUS_CUDA_ERROR");
  EXPECT_STREQ(cuflashGetStatusString(CUFLASH_STATUS_INTERNAL_ERROR), "CUFLASH_STATUS_INTERNAL_ERROR");
  EXPECT_STREQ(cuflashGetStatusString(CUFLASH_STATUS_NO_DEVICE), "CUFLASH_STATUS_NO_DEVICE");
  for (const cuflashStatus_t other : {-1, 7, INT32_MAX, INT32_MIN}) {
    EXPECT_STREQ(cuflashGetStatusString(other), "unknown cuflashStatus_t") << other;
  }
}

TEST_F(StatusTest, VersionIsThatOfTheHeader) {
  EXPECT_EQ(cuflashGetVersion(), CUFLASH_VERSION);
  const std::string expected = "libcuflash " + std::to_string(CUFLASH_VERSION_MAJOR) + "." +
                               std::to_string(CUFLASH_VERSION_MINOR) + "." + std::to_string(CUFLASH_VERSION_PATCH);
  EXPECT_EQ(std::string(cuflashGetBuildInfo()).rfind(expected + ", CUDA ", 0), 0u) << cuflashGetBuildInfo();
}

TEST_F(StatusTest, MessageIsEmptyInAThreadWithoutFailures) {
  ASSERT_EQ(failing_call(), CUFLASH_STATUS_INVALID_ARGUMENT);
  std::string message = "never read";
  std::thread([&] { message = last_message(); }).join();
  EXPECT_EQ(message, "");
}

TEST_F(StatusTest, MessageBelongsToItsThread) {
  ASSERT_EQ(failing_call(), CUFLASH_STATUS_INVALID_ARGUMENT);
  const std::string mine = last_message();
  std::string theirs;
  std::thread([&] {
    cuflashGetKernelInfo(0, nullptr);
    theirs = last_message();
  }).join();
  EXPECT_EQ(mine, "params must not be NULL");
  EXPECT_EQ(theirs, "info must not be NULL");
  EXPECT_EQ(last_message(), mine);
}

TEST_F(StatusTest, SuccessKeepsTheMessage) {
  ASSERT_EQ(failing_call(), CUFLASH_STATUS_INVALID_ARGUMENT);
  const std::string before = last_message();
  const SmallCall<cuflashForwardParams_t> call(CUFLASH_DEVICE_CUDA);
  size_t bytes = 0;
  std::string text;
  ASSERT_EQ(call.workspace_size(&bytes), CUFLASH_STATUS_SUCCESS);
  ASSERT_EQ(call.explain(&text), CUFLASH_STATUS_SUCCESS);
  ASSERT_EQ(call.preload(), CUFLASH_STATUS_SUCCESS);
  ASSERT_EQ(call.run(), CUFLASH_STATUS_SUCCESS);
  EXPECT_EQ(last_message(), before);
}

TEST_F(StatusTest, TheNextFailureReplacesTheMessage) {
  ASSERT_EQ(failing_call(), CUFLASH_STATUS_INVALID_ARGUMENT);
  ASSERT_EQ(cuflashGetKernelInfo(0, nullptr), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(last_message(), "info must not be NULL");
}

TEST_F(StatusTest, NoDriverAndNoDeviceAreOneStatus) {
  for (const cudaError_t error : {cudaErrorStubLibrary, cudaErrorInsufficientDriver, cudaErrorNoDevice}) {
    fake_runtime().reset();
    fake_runtime().fail_all(error);
    const SmallCall<cuflashForwardParams_t> call(CUFLASH_DEVICE_CUDA);
    EXPECT_EQ(call.run(), CUFLASH_STATUS_NO_DEVICE) << error;
    const std::string expected = std::string("no usable CUDA driver or device (") + runtime::error_name(error) + ", " +
                                 std::to_string(error) + "); set device to CUFLASH_DEVICE_HOST to run on the CPU";
    EXPECT_EQ(last_message(), expected);
  }
}

TEST_F(StatusTest, HostCallsNeedNoRuntime) {
  fake_runtime().fail_all(cudaErrorInsufficientDriver);
  const SmallCall<cuflashForwardParams_t> forward(CUFLASH_DEVICE_HOST);
  const SmallCall<cuflashBackwardParams_t> backward(CUFLASH_DEVICE_HOST);
  EXPECT_EQ(forward.run(), CUFLASH_STATUS_SUCCESS);
  EXPECT_EQ(backward.run(), CUFLASH_STATUS_SUCCESS);
  EXPECT_EQ(fake_runtime().num_calls(), 0);
}

// The launch is the first call that a device without matching code fails; the message then says what the binary holds.
TEST_F(StatusTest, NoCodeForTheDeviceNamesTheBuild) {
  for (const cudaError_t error : {cudaErrorNoKernelImageForDevice, cudaErrorUnsupportedPtxVersion}) {
    fake_runtime().reset();
    const SmallCall<cuflashForwardParams_t> call(CUFLASH_DEVICE_CUDA);
    ASSERT_EQ(call.run(), CUFLASH_STATUS_SUCCESS);
    fake_runtime().fail_call(fake_runtime().num_calls(), error);
    EXPECT_EQ(call.run(), CUFLASH_STATUS_NOT_SUPPORTED);
    const std::string expected = std::string("kernel register_tiled fwd has no code for this device (") +
                                 runtime::error_name(error) + ", " + std::to_string(error) +
                                 "); this library is: " + cuflashGetBuildInfo();
    EXPECT_EQ(last_message(), expected);
  }
}

TEST_F(StatusTest, OtherErrorsAreNamed) {
  const SmallCall<cuflashForwardParams_t> call(CUFLASH_DEVICE_CUDA);
  ASSERT_EQ(call.run(), CUFLASH_STATUS_SUCCESS);
  fake_runtime().fail_call(fake_runtime().num_calls(), cudaErrorIllegalAddress);
  EXPECT_EQ(call.run(), CUFLASH_STATUS_CUDA_ERROR);
  EXPECT_EQ(last_message(), "register_tiled fwd failed: cudaErrorIllegalAddress (700)");
}

TEST_F(StatusTest, KernelInfoChecksItsArguments) {
  cuflashKernelInfo_t info{};
  EXPECT_EQ(cuflashGetKernelInfo(0, &info), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(
      last_message(),
      "info.struct_size (0) must be sizeof the info struct: " + std::to_string(sizeof(info)) +
          " in this version of the library"
  );
  for (const size_t size : {size_t{1}, size_t{8}, sizeof(info) - 1, size_t{4097}, SIZE_MAX}) {
    info.struct_size = size;
    EXPECT_EQ(cuflashGetKernelInfo(0, &info), CUFLASH_STATUS_INVALID_ARGUMENT) << size;
    EXPECT_NE(last_message().find("info.struct_size (" + std::to_string(size) + ")"), std::string::npos);
    EXPECT_EQ(info.name, nullptr);
  }
  info.struct_size = sizeof(info);
  for (const int32_t index : {-1, INT32_MIN, cuflashGetKernelCount(), INT32_MAX}) {
    EXPECT_EQ(cuflashGetKernelInfo(index, &info), CUFLASH_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(
        last_message(),
        "index (" + std::to_string(index) + ") must be at least 0 and below cuflashGetKernelCount() (" +
            std::to_string(cuflashGetKernelCount()) + ")"
    );
    EXPECT_EQ(info.name, nullptr);
  }
}

// The struct of a later version: what this one knows is filled in, the rest is 0, bytes behind it stay.
TEST_F(StatusTest, KernelInfoOfALaterVersion) {
  struct Later {
    cuflashKernelInfo_t known;
    unsigned char tail[64];
    unsigned char behind[8];
  };
  Later later;
  std::memset(&later, 0xA5, sizeof(later));
  later.known.struct_size = offsetof(Later, behind);
  cuflashKernelInfo_t info{};
  info.struct_size = sizeof(info);
  ASSERT_EQ(cuflashGetKernelInfo(0, &info), CUFLASH_STATUS_SUCCESS);
  ASSERT_EQ(cuflashGetKernelInfo(0, &later.known), CUFLASH_STATUS_SUCCESS) << last_message();
  EXPECT_EQ(later.known.struct_size, offsetof(Later, behind));
  EXPECT_STREQ(later.known.name, info.name);
  EXPECT_EQ(later.known.features, info.features);
  EXPECT_EQ(later.known.max_head_dim, info.max_head_dim);
  for (const unsigned char byte : later.tail) EXPECT_EQ(byte, 0);
  for (const unsigned char byte : later.behind) EXPECT_EQ(byte, 0xA5);
}

}  // namespace
}  // namespace cuflash::test
