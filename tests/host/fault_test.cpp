// SPDX-License-Identifier: MIT
// Fault injection: every call that the library makes to the CUDA runtime fails once, in every entry point, for every GPU
// kernel.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "calls.h"
#include "fake_runtime.h"

namespace cuflash::test {
namespace {

// head_dim 256: kernels then need more shared memory than they have by default (the forward one of scalar does not), so
// that the call which allows it is among the failing ones.
constexpr Shape kLargeHeads = {.head_dim = 256, .head_dim_v = 256};

// A way to serve a call, with the kernels that it launches.
template <class Params>
struct Path {
  const char* kernel;
  std::set<std::string> launches;
  cuflashDataType_t dtype = CUFLASH_R_32F;
  bool deterministic = false;

  SmallCall<Params> call() const {
    SmallCall<Params> result(CUFLASH_DEVICE_CUDA, kLargeHeads);
    result.params.kernel = kernel;
    result.params.dtype = dtype;
    if constexpr (std::is_same_v<Params, cuflashBackwardParams_t>) result.params.deterministic = deterministic;
    return result;
  }
};

template <class Params>
std::vector<Path<Params>> paths() {
  if constexpr (std::is_same_v<Params, cuflashForwardParams_t>) {
    return {
        {"sm90", {"sm90 fwd"}, CUFLASH_R_16BF},
        {"cp_async", {"cp_async fwd"}, CUFLASH_R_16BF},
        {"wmma", {"wmma fwd"}, CUFLASH_R_16F},
        {"register_tiled", {"register_tiled fwd"}},
        {"scalar", {"scalar fwd"}},
    };
  } else {
    return {
        {"sm90", {"sm90 bwd_prepare", "sm90 bwd", "sm90 bwd_finish"}, CUFLASH_R_16BF},
        {"cp_async", {"cp_async bwd_delta", "cp_async bwd", "cp_async bwd_finish_dq"}, CUFLASH_R_16BF},
        {"cp_async", {"cp_async bwd_delta", "cp_async bwd", "cp_async bwd_dq"}, CUFLASH_R_16BF, true},
        {"wmma", {"wmma bwd_delta", "wmma bwd", "wmma bwd_finish_dq"}, CUFLASH_R_16F},
        {"wmma", {"wmma bwd_delta", "wmma bwd", "wmma bwd_dq"}, CUFLASH_R_16F, true},
        {"register_tiled", {"register_tiled bwd_delta", "register_tiled bwd", "register_tiled bwd_finish_dq"}},
        {"register_tiled",
         {"register_tiled bwd_delta", "register_tiled bwd", "register_tiled bwd_dq"},
         CUFLASH_R_32F,
         true},
        {"scalar", {"scalar bwd_delta", "scalar bwd_dq", "scalar bwd_dkv"}},
    };
  }
}

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

// The message is "WHAT failed: ERROR (NUMBER)". Device queries are named by the call, launches and what precedes them by
// the name of the kernel.
std::string failed_thing(const std::string& message) { return message.substr(0, message.find(" failed: ")); }

bool is_device_query(const std::string& call) { return call == "get_device" || call == "get_attribute"; }

template <class Params>
class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override { fake_runtime().reset(); }
};

using BothParams = ::testing::Types<cuflashForwardParams_t, cuflashBackwardParams_t>;
TYPED_TEST_SUITE(FaultTest, BothParams);

// Every GPU kernel of the registry has a path here.
TYPED_TEST(FaultTest, AllKernelsAreCovered) {
  const std::vector<const char*> kernels = gpu_kernels<TypeParam>();
  const std::set<std::string> listed(kernels.begin(), kernels.end());
  std::set<std::string> covered;
  for (const Path<TypeParam>& path : paths<TypeParam>()) covered.insert(path.kernel);
  EXPECT_EQ(covered, listed);
}

TYPED_TEST(FaultTest, EveryRuntimeCallFailsInTurn) {
  std::set<std::string> failed_calls;
  for (const Path<TypeParam>& path : paths<TypeParam>()) {
    const SmallCall<TypeParam> call = path.call();
    std::set<std::string> failed_launches;
    for (const EntryPoint<TypeParam>& entry : entry_points<TypeParam>()) {
      fake_runtime().reset();
      ASSERT_EQ(entry.call(call), CUFLASH_STATUS_SUCCESS) << entry.name;
      const int num_calls = fake_runtime().num_calls();
      const size_t num_launches = fake_runtime().launches().size();
      ASSERT_GE(num_calls, 5) << entry.name << ": the current device and its properties at least";
      for (int n = 1; n <= num_calls; ++n) {
        SCOPED_TRACE(std::string(path.kernel) + " " + entry.name + ", runtime call " + std::to_string(n) + " fails");
        fake_runtime().reset();
        fake_runtime().fail_call(n, cudaErrorLaunchFailure);
        ASSERT_EQ(entry.call(call), CUFLASH_STATUS_CUDA_ERROR);
        const std::string failed = fake_runtime().failed_call(), message = cuflashGetLastErrorMessage();
        const std::string thing = failed_thing(message);
        failed_calls.insert(failed);
        if (failed == "launch") failed_launches.insert(thing);
        const bool is_named =
            is_device_query(failed) ? thing.rfind("runtime::" + failed + "(", 0) == 0 : path.launches.count(thing) == 1;
        EXPECT_TRUE(is_named) << message;
        EXPECT_EQ(message, thing + " failed: cudaErrorLaunchFailure (719)");
        EXPECT_EQ(fake_runtime().num_calls(), n) << "the runtime was called after the failure";
        EXPECT_TRUE(num_launches == 0 || fake_runtime().launches().size() < num_launches);

        fake_runtime().reset();
        EXPECT_EQ(entry.call(call), CUFLASH_STATUS_SUCCESS) << "a failure must not outlive its call";
        EXPECT_EQ(fake_runtime().num_calls(), num_calls);
        EXPECT_EQ(fake_runtime().launches().size(), num_launches);
      }
    }
    EXPECT_EQ(failed_launches, path.launches);
    EXPECT_TRUE(call.outputs_untouched());
  }
  const std::set<std::string> all = {
      "get_device", "get_attribute", "allow_dynamic_shared_memory", "launch", "load_kernel", "encode_tensor_map"};
  EXPECT_EQ(failed_calls, all);
}

TYPED_TEST(FaultTest, AMissingDriverIsRecognisedAtEveryCall) {
  for (const Path<TypeParam>& path : paths<TypeParam>()) {
    const SmallCall<TypeParam> call = path.call();
    for (const EntryPoint<TypeParam>& entry : entry_points<TypeParam>()) {
      fake_runtime().reset();
      ASSERT_EQ(entry.call(call), CUFLASH_STATUS_SUCCESS) << entry.name;
      const int num_calls = fake_runtime().num_calls();
      for (int n = 1; n <= num_calls; ++n) {
        fake_runtime().reset();
        fake_runtime().fail_call(n, cudaErrorNoDevice);
        EXPECT_EQ(entry.call(call), CUFLASH_STATUS_NO_DEVICE)
            << path.kernel << " " << entry.name << ", runtime call " << n;
      }
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
