// SPDX-License-Identifier: MIT
// The path of a call allocates nothing, but for the host kernel's working memory: this program replaces operator new,
// and counts or lets large requests fail.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

#include "calls.h"
#include "fake_runtime.h"

namespace {

std::atomic<int64_t> num_allocations{0};
std::atomic<std::size_t> largest_granted{SIZE_MAX};

void* counted(std::size_t bytes) noexcept {
  ++num_allocations;
  return bytes > largest_granted ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}

void* counted_or_throw(std::size_t bytes) {
  if (void* memory = counted(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// All forms that are used: a sanitizer's runtime would bring its own for those left out, and its own idea of delete.
void* operator new(std::size_t bytes) { return counted_or_throw(bytes); }
void* operator new[](std::size_t bytes) { return counted_or_throw(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace cuflash::test {
namespace {

template <class Params>
class AllocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_runtime().reset();
    fake_runtime().set_device({}, fresh_ordinal());
  }
};

using BothParams = ::testing::Types<cuflashForwardParams_t, cuflashBackwardParams_t>;
TYPED_TEST_SUITE(AllocationTest, BothParams);

TEST(AllocationCounter, Counts) {
  const int64_t before = num_allocations;
  delete new std::string(100, 'x');
  EXPECT_EQ(num_allocations - before, 2);
}

// The first call is measured too: it reads the device's properties and the environment.
TYPED_TEST(AllocationTest, NoCallAllocates) {
  const SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  size_t bytes = 0;
  char text[512];
  const int64_t before = num_allocations;
  int failures = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    failures += call.run() != CUFLASH_STATUS_SUCCESS;
    failures += call.preload() != CUFLASH_STATUS_SUCCESS;
    failures += call.workspace_size(&bytes) != CUFLASH_STATUS_SUCCESS;
    failures += Api<TypeParam>::explain(&call.params, text, sizeof(text), &bytes) != CUFLASH_STATUS_SUCCESS;
  }
  EXPECT_EQ(num_allocations - before, 0);
  EXPECT_EQ(failures, 0) << cuflashGetLastErrorMessage();
}

// A path that fails for want of memory must not need any.
TYPED_TEST(AllocationTest, NoFailureAllocates) {
  SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  const int64_t before = num_allocations;
  call.params.num_heads = 3;
  const cuflashStatus_t invalid = call.run();
  call.params.num_heads = 4;
  call.params.kernel = "host";
  const cuflashStatus_t unsupported = call.run();
  call.params.kernel = nullptr;
  fake_runtime().fail_call(1, cudaErrorLaunchFailure);
  const cuflashStatus_t failed = call.run();
  EXPECT_EQ(num_allocations - before, 0);
  EXPECT_EQ(invalid, CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(unsupported, CUFLASH_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(failed, CUFLASH_STATUS_CUDA_ERROR);
}

TYPED_TEST(AllocationTest, TheHostKernelSaysThatMemoryIsShort) {
  const SmallCall<TypeParam> call(CUFLASH_DEVICE_HOST);
  largest_granted = 4096;
  const cuflashStatus_t status = call.run();
  largest_granted = SIZE_MAX;
  EXPECT_EQ(status, CUFLASH_STATUS_INTERNAL_ERROR);
  EXPECT_EQ(std::string(cuflashGetLastErrorMessage()).rfind("host: no memory (", 0), 0u)
      << cuflashGetLastErrorMessage();
  EXPECT_TRUE(call.outputs_untouched());
  EXPECT_EQ(call.run(), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
}

}  // namespace
}  // namespace cuflash::test
