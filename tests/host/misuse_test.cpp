// SPDX-License-Identifier: MIT
// The misuse matrix. Each row runs through all entry points on both devices and must give its status and a message that
// names the field, with nothing written and nothing launched.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "calls.h"
#include "fake_runtime.h"
#include "misuse_rows.h"

namespace cuflash::test {
namespace {

template <class Params>
class MisuseTest : public ::testing::Test {
 protected:
  static void expect_refused(const Row<Params>& row, cuflashStatus_t status) {
    const std::string message = cuflashGetLastErrorMessage();
    EXPECT_EQ(status, row.status) << message;
    for (const std::string& mention : row.mentions) EXPECT_NE(message.find(mention), std::string::npos) << message;
  }

  // Forgets the last message, so that a call which fails without one is caught.
  static void clear_message() { cuflashGetKernelInfo(0, nullptr); }

  static void check(const Row<Params>& row, cuflashDevice_t device) {
    const SmallCall<Params> call(device);
    Record<Params> record{};
    record.params = call.params;
    row.change(record);
    fake_runtime().reset();

    clear_message();
    expect_refused(row, Api<Params>::run(&record.params, call.workspace.data(), call.workspace.bytes(), nullptr));
    EXPECT_TRUE(call.outputs_untouched()) << "outputs or workspace were written";
    EXPECT_EQ(fake_runtime().num_calls(), 0) << "the CUDA runtime was called";
    if (row.size_query_accepts) return;

    size_t bytes = 12345;
    clear_message();
    expect_refused(row, Api<Params>::workspace_size(&record.params, &bytes));
    EXPECT_EQ(bytes, 12345u) << "a refused size query must not write a size";
    char text[64] = "of an earlier call";
    clear_message();
    expect_refused(row, Api<Params>::explain(&record.params, text, sizeof(text), &bytes));
    EXPECT_STREQ(text, "") << "a caller that prints the text regardless must find one";
    EXPECT_EQ(bytes, 1u) << "the size of the empty text";
    clear_message();
    expect_refused(row, Api<Params>::preload(&record.params));
    EXPECT_EQ(fake_runtime().num_calls(), 0) << "the CUDA runtime was called";
  }
};

using BothParams = ::testing::Types<Forward, Backward>;
TYPED_TEST_SUITE(MisuseTest, BothParams);

TYPED_TEST(MisuseTest, EveryRowIsRefused) {
  const Rows<TypeParam> rows = misuse_rows<TypeParam>();
  for (const Row<TypeParam>& row : rows) {
    for (const cuflashDevice_t device : {CUFLASH_DEVICE_CUDA, CUFLASH_DEVICE_HOST}) {
      SCOPED_TRACE(row.name + (device == CUFLASH_DEVICE_HOST ? ", host" : ", CUDA"));
      this->check(row, device);
    }
  }
  std::printf("%s: %zu rows of misuse, on two devices\n", Api<TypeParam>::kName, rows.size());
  EXPECT_GE(rows.size(), 250u);
}

// What the matrix starts from is right: otherwise its rows would show nothing.
TYPED_TEST(MisuseTest, TheUnchangedCallIsAccepted) {
  for (const cuflashDevice_t device : {CUFLASH_DEVICE_CUDA, CUFLASH_DEVICE_HOST}) {
    fake_runtime().reset();
    const SmallCall<TypeParam> call(device);
    Record<TypeParam> record{};
    record.params = call.params;
    record.params.struct_size = sizeof(record);  // of a later version, with a tail of zeros
    EXPECT_EQ(
        Api<TypeParam>::run(&record.params, call.workspace.data(), call.workspace.bytes(), nullptr),
        CUFLASH_STATUS_SUCCESS
    ) << cuflashGetLastErrorMessage();
    EXPECT_EQ(fake_runtime().launches().empty(), device == CUFLASH_DEVICE_HOST);
  }
}

TYPED_TEST(MisuseTest, NullParams) {
  size_t bytes = 0;
  char text[8];
  EXPECT_EQ(Api<TypeParam>::run(nullptr, nullptr, 0, nullptr), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(Api<TypeParam>::workspace_size(nullptr, &bytes), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(Api<TypeParam>::explain(nullptr, text, sizeof(text), &bytes), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(Api<TypeParam>::preload(nullptr), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(Api<TypeParam>::init(nullptr, sizeof(TypeParam)), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(cuflashGetLastErrorMessage(), "params must not be NULL");
}

TYPED_TEST(MisuseTest, NullResults) {
  const SmallCall<TypeParam> call(CUFLASH_DEVICE_HOST);
  EXPECT_EQ(Api<TypeParam>::workspace_size(&call.params, nullptr), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(cuflashGetLastErrorMessage(), "workspace_size must not be NULL");
  EXPECT_EQ(Api<TypeParam>::explain(&call.params, nullptr, 10, nullptr), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(cuflashGetLastErrorMessage(), "buffer must not be NULL: buffer_size is 10");
}

TYPED_TEST(MisuseTest, InitRefusesForeignSizes) {
  TypeParam params;
  for (const size_t size : {size_t{0}, size_t{8}, sizeof(TypeParam) - 1, size_t{4097}, SIZE_MAX}) {
    EXPECT_EQ(Api<TypeParam>::init(&params, size), CUFLASH_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(
        cuflashGetLastErrorMessage(),
        "params.struct_size (" + std::to_string(size) + ") must be sizeof the params struct: " +
            std::to_string(sizeof(TypeParam)) + " in this version of the library"
    );
  }
}

// A data pointer may be null where its tensor has no element.
TYPED_TEST(MisuseTest, NullTensorsWithoutElementsAreAccepted) {
  fake_runtime().reset();
  SmallCall<TypeParam> call(CUFLASH_DEVICE_HOST, {.seqlen_k = 0});
  call.params.k.data = nullptr;
  call.params.v.data = nullptr;
  if constexpr (kIsBackward<TypeParam>) {
    call.params.dk.data = nullptr;
    call.params.dv.data = nullptr;
  }
  EXPECT_EQ(call.run(), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
}

// The backward pass on a GPU keeps delta and the sums of dq, for every query row, in the workspace.
TEST(WorkspaceMisuseTest, TooSmallNullAndMisaligned) {
  fake_runtime().reset();
  const SmallCall<Backward> call(CUFLASH_DEVICE_CUDA);
  size_t needed = 0;
  ASSERT_EQ(call.workspace_size(&needed), CUFLASH_STATUS_SUCCESS);
  ASSERT_GT(needed, 0u);
  const auto run = [&](void* workspace, size_t bytes) {
    return cuflashBackward(&call.params, workspace, bytes, nullptr);
  };
  char* const workspace = static_cast<char*>(call.workspace.data());

  for (const size_t bytes : {size_t{0}, size_t{1}, needed / 2, needed - 1}) {
    for (void* address : {static_cast<void*>(workspace), static_cast<void*>(nullptr)}) {
      EXPECT_EQ(run(address, bytes), CUFLASH_STATUS_WORKSPACE_TOO_SMALL);
      EXPECT_EQ(
          cuflashGetLastErrorMessage(),
          "workspace_size (" + std::to_string(bytes) + ") must be at least " + std::to_string(needed)
      );
    }
  }
  EXPECT_EQ(run(nullptr, needed), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(
      cuflashGetLastErrorMessage(), "workspace must not be NULL: " + std::to_string(needed) + " bytes are needed"
  );
  for (const size_t shift : {1, 4, 16, 64, 128, 255}) {
    EXPECT_EQ(run(workspace + shift, needed), CUFLASH_STATUS_INVALID_ARGUMENT);
    char expected[128];
    std::snprintf(
        expected, sizeof(expected), "workspace (%p) must be aligned to 256 bytes", static_cast<void*>(workspace + shift)
    );
    EXPECT_STREQ(cuflashGetLastErrorMessage(), expected);
  }
  EXPECT_TRUE(fake_runtime().launches().empty());
  EXPECT_TRUE(call.outputs_untouched());
  EXPECT_EQ(run(workspace, needed), CUFLASH_STATUS_SUCCESS);
}

// The workspace may be none of the other memory, inputs included: it is written.
TEST(WorkspaceMisuseTest, OverlapsAreRefused) {
  fake_runtime().reset();
  SmallCall<Backward> call(CUFLASH_DEVICE_CUDA);
  call.params.deterministic = 1;  // a workspace so small that it overlaps one tensor alone
  size_t needed = 0;
  ASSERT_EQ(call.workspace_size(&needed), CUFLASH_STATUS_SUCCESS);
  for (const Operand<Backward>& other : operands<Backward>()) {
    void* const address = const_cast<void*>(other.get(call.params));
    EXPECT_EQ(cuflashBackward(&call.params, address, needed, nullptr), CUFLASH_STATUS_INVALID_ARGUMENT) << other.name;
    const std::string message = cuflashGetLastErrorMessage();
    EXPECT_EQ(message.rfind("workspace (", 0), 0u) << message;
    EXPECT_NE(message.find(std::string(" overlaps ") + other.name + " ("), std::string::npos) << message;
  }
  EXPECT_TRUE(fake_runtime().launches().empty());
  EXPECT_TRUE(call.outputs_untouched());
}

TEST(WorkspaceMisuseTest, NoneIsNeededWhereTheSizeIsZero) {
  fake_runtime().reset();
  const SmallCall<Forward> call(CUFLASH_DEVICE_CUDA);
  size_t needed = 1;
  ASSERT_EQ(call.workspace_size(&needed), CUFLASH_STATUS_SUCCESS);
  ASSERT_EQ(needed, 0u);
  EXPECT_EQ(cuflashForward(&call.params, nullptr, 0, nullptr), CUFLASH_STATUS_SUCCESS);
  EXPECT_EQ(cuflashForward(&call.params, moved(call.workspace.data(), 1), 1, nullptr), CUFLASH_STATUS_SUCCESS);
}

}  // namespace
}  // namespace cuflash::test
