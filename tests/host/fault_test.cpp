// SPDX-License-Identifier: MIT
// Fault injection: every call that the library makes to the CUDA runtime fails once, in every entry point.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "calls.h"
#include "fake_runtime.h"

namespace cuflash::test {
namespace {

// head_dim 256: the backward kernels then need more shared memory than a kernel has by default, so that the call which
// allows it is among the failing ones.
constexpr Shape kLargeHeads = {.head_dim = 256, .head_dim_v = 256};

template <class Params>
struct EntryPoint {
  const char* name;
  std::function<cuflashStatus_t(const SmallCall<Params>&)> call;
};

template <class Params>
std::vector<EntryPoint<Params>> entry_points() {
  return {
      {"run", [](const SmallCall<Params>& c) { return c.run(); }},
      {"preload", [](const SmallCall<Params>& c) { return c.preload(); }},
      {"workspace size",
       [](const SmallCall<Params>& c) {
         size_t bytes = 0;
         return c.workspace_size(&bytes);
       }},
      {"explain",
       [](const SmallCall<Params>& c) {
         std::string text;
         return c.explain(&text);
       }},
  };
}

// The message names the call that failed: device queries by the call, launches and what precedes them by the kernel.
std::string expected_mention(const std::string& failed_call) {
  return failed_call == "get_device" || failed_call == "get_attribute" ? "runtime::" + failed_call : "scalar ";
}

template <class Params>
class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override { fake_runtime().reset(); }
};

using BothParams = ::testing::Types<cuflashForwardParams_t, cuflashBackwardParams_t>;
TYPED_TEST_SUITE(FaultTest, BothParams);

TYPED_TEST(FaultTest, EveryRuntimeCallFailsInTurn) {
  const SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA, kLargeHeads);
  std::set<std::string> failed_calls;
  for (const EntryPoint<TypeParam>& entry : entry_points<TypeParam>()) {
    fake_runtime().reset();
    ASSERT_EQ(entry.call(call), CUFLASH_STATUS_SUCCESS) << entry.name;
    const int num_calls = fake_runtime().num_calls();
    const size_t num_launches = fake_runtime().launches().size();
    ASSERT_GE(num_calls, 5) << entry.name << ": the current device and its properties at least";
    for (int n = 1; n <= num_calls; ++n) {
      SCOPED_TRACE(std::string(entry.name) + ", runtime call " + std::to_string(n) + " fails");
      fake_runtime().reset();
      fake_runtime().fail_call(n, cudaErrorLaunchFailure);
      ASSERT_EQ(entry.call(call), CUFLASH_STATUS_CUDA_ERROR);
      const std::string failed = fake_runtime().failed_call(), message = cuflashGetLastErrorMessage();
      failed_calls.insert(failed);
      EXPECT_NE(message.find(expected_mention(failed)), std::string::npos) << message;
      EXPECT_NE(message.find("cudaErrorLaunchFailure (719)"), std::string::npos) << message;
      EXPECT_EQ(fake_runtime().num_calls(), n) << "the runtime was called after the failure";
      EXPECT_TRUE(num_launches == 0 || fake_runtime().launches().size() < num_launches);

      fake_runtime().reset();
      EXPECT_EQ(entry.call(call), CUFLASH_STATUS_SUCCESS) << "a failure must not outlive its call";
      EXPECT_EQ(fake_runtime().num_calls(), num_calls);
      EXPECT_EQ(fake_runtime().launches().size(), num_launches);
    }
  }
  std::set<std::string> all = {"get_device", "get_attribute", "launch", "load_kernel"};
  if (std::is_same_v<TypeParam, cuflashBackwardParams_t>) all.insert("allow_dynamic_shared_memory");
  EXPECT_EQ(failed_calls, all);
  EXPECT_TRUE(call.outputs_untouched());
}

TYPED_TEST(FaultTest, AMissingDriverIsRecognisedAtEveryCall) {
  const SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA, kLargeHeads);
  for (const EntryPoint<TypeParam>& entry : entry_points<TypeParam>()) {
    fake_runtime().reset();
    ASSERT_EQ(entry.call(call), CUFLASH_STATUS_SUCCESS) << entry.name;
    const int num_calls = fake_runtime().num_calls();
    for (int n = 1; n <= num_calls; ++n) {
      fake_runtime().reset();
      fake_runtime().fail_call(n, cudaErrorNoDevice);
      EXPECT_EQ(entry.call(call), CUFLASH_STATUS_NO_DEVICE) << entry.name << ", runtime call " << n;
    }
  }
}

// Properties of a device are kept only once all of them are known.
TYPED_TEST(FaultTest, AFailedDeviceQueryIsNotKept) {
  const SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  fake_runtime().set_device({}, fresh_ordinal());
  size_t bytes = 0;
  for (int n = 2; n <= 5; ++n) {
    fake_runtime().fail_call(n, cudaErrorLaunchFailure);
    ASSERT_EQ(call.workspace_size(&bytes), CUFLASH_STATUS_CUDA_ERROR);
    ASSERT_STREQ(fake_runtime().failed_call(), "get_attribute");
  }
  ASSERT_EQ(call.workspace_size(&bytes), CUFLASH_STATUS_SUCCESS);
  const int queries = fake_runtime().num_attribute_queries();
  ASSERT_EQ(call.workspace_size(&bytes), CUFLASH_STATUS_SUCCESS);
  EXPECT_EQ(fake_runtime().num_attribute_queries(), queries);
}

}  // namespace
}  // namespace cuflash::test
