// SPDX-License-Identifier: MIT
// CUFLASH_KERNEL and CUFLASH_LOG. The environment is read once per process, so every case runs in one of its own: a
// death test of style "threadsafe" starts this program anew, sets the variables there and leaves with its verdict.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "calls.h"
#include "env.h"
#include "fake_runtime.h"

namespace cuflash::test {
namespace {

using Forward = cuflashForwardParams_t;
using Backward = cuflashBackwardParams_t;

class EnvironmentDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

constexpr int kAsExpected = 0;

void set(const char* name, const char* value) { setenv(name, value, /*overwrite=*/1); }

// Ends the child: 0 if a call on the device gives this status; its message goes to stderr for the parent to match.
template <class Params>
[[noreturn]] void leave_with_run(cuflashDevice_t device, cuflashStatus_t expected, const char* kernel = nullptr) {
  SmallCall<Params> call(device);
  call.params.kernel = kernel;
  const cuflashStatus_t status = call.run();
  std::fprintf(stderr, "%s\n", cuflashGetLastErrorMessage());
  std::exit(status == expected ? kAsExpected : 100 + status);
}

TEST_F(EnvironmentDeathTest, NothingIsForcedOrLoggedByDefault) {
  EXPECT_EXIT(
      {
        unsetenv("CUFLASH_KERNEL");
        unsetenv("CUFLASH_LOG");
        leave_with_run<Forward>(CUFLASH_DEVICE_CUDA, CUFLASH_STATUS_SUCCESS);
      },
      ::testing::ExitedWithCode(kAsExpected),
      "^\n$"
  );
}

TEST_F(EnvironmentDeathTest, ForcesAKernelThatCan) {
  EXPECT_EXIT(
      {
        set("CUFLASH_KERNEL", "scalar");
        set("CUFLASH_LOG", "dispatch");
        leave_with_run<Backward>(CUFLASH_DEVICE_CUDA, CUFLASH_STATUS_SUCCESS);
      },
      ::testing::ExitedWithCode(kAsExpected),
      "\nforced: scalar\n  sm90 .*\n  cp_async .*\n  wmma .*\n  register_tiled +could: .*\n  scalar +chosen: "
  );
}

TEST_F(EnvironmentDeathTest, AForcedKernelThatCannotIsAnError) {
  EXPECT_EXIT(
      {
        set("CUFLASH_KERNEL", "host");
        leave_with_run<Forward>(CUFLASH_DEVICE_CUDA, CUFLASH_STATUS_NOT_SUPPORTED);
      },
      ::testing::ExitedWithCode(kAsExpected),
      "forced kernel host cannot serve this call: device \\(CUFLASH_DEVICE_CUDA\\)"
  );
  EXPECT_EXIT(
      {
        set("CUFLASH_KERNEL", "scalar");
        leave_with_run<Backward>(CUFLASH_DEVICE_HOST, CUFLASH_STATUS_NOT_SUPPORTED);
      },
      ::testing::ExitedWithCode(kAsExpected),
      "forced kernel scalar cannot serve this call: device \\(CUFLASH_DEVICE_HOST\\)"
  );
}

TEST_F(EnvironmentDeathTest, AnUnknownNameIsAnError) {
  EXPECT_EXIT(
      {
        set("CUFLASH_KERNEL", "fastest");
        leave_with_run<Forward>(CUFLASH_DEVICE_CUDA, CUFLASH_STATUS_INVALID_ARGUMENT);
      },
      ::testing::ExitedWithCode(kAsExpected),
      "CUFLASH_KERNEL \\(\"fastest\"\\) must be one of: sm90 cp_async wmma register_tiled scalar host"
  );
}

TEST_F(EnvironmentDeathTest, TheCallOverridesTheEnvironment) {
  EXPECT_EXIT(
      {
        set("CUFLASH_KERNEL", "host");
        set("CUFLASH_LOG", "dispatch");
        leave_with_run<Forward>(CUFLASH_DEVICE_CUDA, CUFLASH_STATUS_SUCCESS, "scalar");
      },
      ::testing::ExitedWithCode(kAsExpected),
      "\nforced: scalar\n  sm90 .*\n  cp_async .*\n  wmma .*\n  register_tiled +could: .*\n  scalar +chosen: "
  );
}

TEST_F(EnvironmentDeathTest, AnEmptyNameForcesNothing) {
  EXPECT_EXIT(
      {
        set("CUFLASH_KERNEL", "");
        set("CUFLASH_LOG", "dispatch");
        leave_with_run<Forward>(CUFLASH_DEVICE_CUDA, CUFLASH_STATUS_SUCCESS);
      },
      ::testing::ExitedWithCode(kAsExpected),
      "\ndevice: .*\n  sm90 .*\n  cp_async .*\n  wmma .*\n  register_tiled +chosen: "
  );
}

TEST_F(EnvironmentDeathTest, IsReadOnce) {
  EXPECT_EXIT(
      {
        set("CUFLASH_KERNEL", "scalar");
        const std::string first = environment().kernel;
        set("CUFLASH_KERNEL", "host");
        set("CUFLASH_LOG", "dispatch");
        const bool as_before = first == "scalar" && first == environment().kernel && !environment().log_dispatch;
        std::exit(as_before ? kAsExpected : 1);
      },
      ::testing::ExitedWithCode(kAsExpected),
      ""
  );
}

TEST_F(EnvironmentDeathTest, LogsTheDispatch) {
  EXPECT_EXIT(
      {
        set("CUFLASH_LOG", "dispatch");
        leave_with_run<Forward>(CUFLASH_DEVICE_CUDA, CUFLASH_STATUS_SUCCESS);
      },
      ::testing::ExitedWithCode(kAsExpected),
      "cuflash: forward fp32 batch=2 .*\n.*\n  sm90 +cannot: .*\n  cp_async +cannot: .*\n  wmma +cannot: .*\n  "
      "register_tiled +chosen: "
      ".*\n  scalar +could: .*\n  host +cannot: "
  );
  EXPECT_EXIT(
      {
        set("CUFLASH_LOG", "dispatch");
        leave_with_run<Backward>(CUFLASH_DEVICE_HOST, CUFLASH_STATUS_SUCCESS);
      },
      ::testing::ExitedWithCode(kAsExpected),
      "cuflash: backward fp32 batch=2 .*\ndevice: host\n  sm90 +cannot: .*\n  cp_async +cannot: .*\n  wmma +cannot: "
      ".*\n  register_tiled "
      "+cannot: .*\n  scalar +cannot: .*\n  host +chosen: "
  );
}

TEST_F(EnvironmentDeathTest, OtherLogValuesAreSilent) {
  EXPECT_EXIT(
      {
        set("CUFLASH_LOG", "everything");
        leave_with_run<Forward>(CUFLASH_DEVICE_CUDA, CUFLASH_STATUS_SUCCESS);
      },
      ::testing::ExitedWithCode(kAsExpected),
      "^\n$"
  );
}

}  // namespace
}  // namespace cuflash::test
