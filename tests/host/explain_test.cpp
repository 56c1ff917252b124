// SPDX-License-Identifier: MIT
// The dry run's text, and that what the size query says is what a run takes.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "calls.h"
#include "fake_runtime.h"

namespace cuflash::test {
namespace {

template <class Params>
class ExplainTest : public ::testing::Test {
 protected:
  void SetUp() override { fake_runtime().reset(); }

  static std::string text_of(const SmallCall<Params>& call, cuflashStatus_t expected = CUFLASH_STATUS_SUCCESS) {
    std::string text;
    EXPECT_EQ(call.explain(&text), expected) << cuflashGetLastErrorMessage();
    return text;
  }
};

using BothParams = ::testing::Types<cuflashForwardParams_t, cuflashBackwardParams_t>;
TYPED_TEST_SUITE(ExplainTest, BothParams);

void expect_line(const std::string& text, const std::string& line) {
  EXPECT_NE(text.find(line), std::string::npos) << "missing: " << line << "\nin:\n" << text;
}

TYPED_TEST(ExplainTest, SaysWhatRunsAndWhyNothingElse) {
  SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  call.params.mask = CUFLASH_MASK_CAUSAL;
  call.params.softcap = 20.0f;
  const std::string text = this->text_of(call);
  expect_line(
      text,
      std::string(Api<TypeParam>::kName) +
          " fp32 batch=2 num_heads=4 num_heads_k=2 seqlen_q=5 seqlen_k=7 "
          "head_dim=8 head_dim_v=8 features=causal,gqa,softcap\n"
  );
  expect_line(text, "sm_90, 132 SMs\n");
  expect_line(text, "  cp_async         cannot: dtype (fp32) is not served\n");
  expect_line(text, "  wmma             cannot: dtype (fp32) is not served\n");
  expect_line(text, "  register_tiled   chosen: capacity head_dim 32, ");
  expect_line(text, "  scalar           could: not tried, an earlier kernel accepts\n");
  expect_line(
      text, "  host             cannot: device (CUFLASH_DEVICE_CUDA) needs a GPU: this kernel runs on the host\n"
  );
  size_t bytes = 0;
  ASSERT_EQ(call.workspace_size(&bytes), CUFLASH_STATUS_SUCCESS);
  expect_line(text, "workspace " + std::to_string(bytes) + " bytes\n");
  EXPECT_TRUE(fake_runtime().launches().empty()) << "a dry run launches nothing";
}

TYPED_TEST(ExplainTest, OnTheHost) {
  const std::string text = this->text_of(SmallCall<TypeParam>(CUFLASH_DEVICE_HOST));
  expect_line(text, "device: host\n");
  for (const char* kernel : {"cp_async       ", "wmma           ", "register_tiled ", "scalar         "}) {
    const char* reason = "  cannot: device (CUFLASH_DEVICE_HOST) needs host memory: this is a GPU kernel\n";
    expect_line(text, std::string("  ") + kernel + reason);
  }
  expect_line(text, "  host             chosen: ");
  EXPECT_EQ(fake_runtime().num_calls(), 0);
}

TYPED_TEST(ExplainTest, SaysWhatIsForced) {
  SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  call.params.kernel = "scalar";
  const std::string text = this->text_of(call);
  expect_line(text, "forced: scalar\n");
  expect_line(text, "  register_tiled   could: not tried, another kernel is forced\n");
  expect_line(text, "  scalar           chosen: capacity head_dim 32, ");
}

// The text is written although the status is a refusal: that is when it is needed most.
TYPED_TEST(ExplainTest, ARefusalIsExplained) {
  SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  call.params.kernel = "host";
  const std::string text = this->text_of(call, CUFLASH_STATUS_NOT_SUPPORTED);
  const std::string sentence =
      "forced kernel host cannot serve this call: device (CUFLASH_DEVICE_CUDA) needs a GPU: this kernel runs on the "
      "host";
  EXPECT_EQ(cuflashGetLastErrorMessage(), sentence);
  expect_line(text, "forced: host\n");
  expect_line(text, "  register_tiled   could: not tried, another kernel is forced\n");
  expect_line(text, "  scalar           could: not tried, another kernel is forced\n");
  expect_line(text, sentence);

  call.params.kernel = nullptr;
  fake_runtime().set_device({.sm = 52});
  expect_line(
      this->text_of(call, CUFLASH_STATUS_NOT_SUPPORTED), "cannot: device sm (52) is older than this kernel needs\n"
  );
}

// As for the size query: no device is needed, and no kernel, not even the forced one, is asked.
TYPED_TEST(ExplainTest, AnEmptyProblemRunsNothing) {
  fake_runtime().fail_all(cudaErrorNoDevice);
  EXPECT_EQ(cuflashGetKernelInfo(0, nullptr), CUFLASH_STATUS_INVALID_ARGUMENT);
  const std::string message = cuflashGetLastErrorMessage();
  SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA, {.batch = 0});
  call.params.kernel = "host";
  expect_line(this->text_of(call), "  nothing to compute: no kernel runs\n");
  EXPECT_EQ(cuflashGetLastErrorMessage(), message) << "a call that succeeds leaves the message as it is";
  EXPECT_EQ(fake_runtime().num_calls(), 0);
}

TYPED_TEST(ExplainTest, TextIsCutToTheBufferAndCountedInFull) {
  const SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  const std::string whole = this->text_of(call);
  ASSERT_GT(whole.size(), 100u);
  for (size_t size = 0; size <= whole.size() + 2; ++size) {
    std::vector<char> buffer(whole.size() + 8, '#');
    size_t required = 0;
    ASSERT_EQ(Api<TypeParam>::explain(&call.params, buffer.data(), size, &required), CUFLASH_STATUS_SUCCESS);
    ASSERT_EQ(required, whole.size() + 1);
    if (size > 0) {
      ASSERT_EQ(std::string(buffer.data()), whole.substr(0, size - 1));
    }
    for (size_t i = size; i < buffer.size(); ++i) ASSERT_EQ(buffer[i], '#') << "byte " << i << " past size " << size;
  }
}

// A refused call has no text: the size is that of an empty one, so that the usual two calls work without a check.
TYPED_TEST(ExplainTest, AFailureLeavesAnEmptyText) {
  SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  call.params.head_dim = -1;
  size_t required = 12345;
  EXPECT_EQ(Api<TypeParam>::explain(&call.params, nullptr, 0, &required), CUFLASH_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(required, 1u);
  std::vector<char> buffer(8, '#');
  required = 12345;
  EXPECT_EQ(
      Api<TypeParam>::explain(&call.params, buffer.data(), buffer.size(), &required), CUFLASH_STATUS_INVALID_ARGUMENT
  );
  EXPECT_EQ(required, 1u);
  EXPECT_EQ(buffer, (std::vector<char>{'\0', '#', '#', '#', '#', '#', '#', '#'}));
}

TYPED_TEST(ExplainTest, BufferAndSizeAreOptional) {
  const SmallCall<TypeParam> call(CUFLASH_DEVICE_CUDA);
  size_t required = 0;
  EXPECT_EQ(Api<TypeParam>::explain(&call.params, nullptr, 0, &required), CUFLASH_STATUS_SUCCESS);
  EXPECT_EQ(required, this->text_of(call).size() + 1);
  EXPECT_EQ(Api<TypeParam>::explain(&call.params, nullptr, 0, nullptr), CUFLASH_STATUS_SUCCESS);
}

TYPED_TEST(ExplainTest, DataPointersMayBeNull) {
  for (const cuflashDevice_t device : {CUFLASH_DEVICE_CUDA, CUFLASH_DEVICE_HOST}) {
    const auto params = shape_params<TypeParam>(device, {});
    size_t bytes = 0, bytes_with_data = 1;
    EXPECT_EQ(Api<TypeParam>::workspace_size(&params, &bytes), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
    EXPECT_EQ(SmallCall<TypeParam>(device).workspace_size(&bytes_with_data), CUFLASH_STATUS_SUCCESS);
    EXPECT_EQ(bytes, bytes_with_data);
    EXPECT_EQ(Api<TypeParam>::explain(&params, nullptr, 0, nullptr), CUFLASH_STATUS_SUCCESS);
    EXPECT_EQ(Api<TypeParam>::preload(&params), CUFLASH_STATUS_SUCCESS);
    EXPECT_EQ(Api<TypeParam>::run(&params, nullptr, 0, nullptr), CUFLASH_STATUS_INVALID_ARGUMENT);
  }
}

// A run takes exactly the size that the query says: not a byte less is accepted, not a byte more is needed.
TYPED_TEST(ExplainTest, TheSizeQueryIsWhatARunTakes) {
  for (const cuflashDevice_t device : {CUFLASH_DEVICE_CUDA, CUFLASH_DEVICE_HOST}) {
    for (const Shape& shape :
         {Shape{}, Shape{1, 1, 1, 1, 1, 1, 1}, Shape{3, 6, 2, 65, 33, 40, 72}, Shape{.seqlen_q = 1, .seqlen_k = 300}}) {
      const SmallCall<TypeParam> call(device, shape);
      size_t bytes = 0;
      ASSERT_EQ(call.workspace_size(&bytes), CUFLASH_STATUS_SUCCESS);
      ASSERT_LE(bytes, call.workspace.bytes());
      void* workspace = bytes == 0 ? nullptr : call.workspace.data();
      if (bytes > 0) {
        EXPECT_EQ(Api<TypeParam>::run(&call.params, workspace, bytes - 1, nullptr), CUFLASH_STATUS_WORKSPACE_TOO_SMALL);
      }
      EXPECT_EQ(Api<TypeParam>::run(&call.params, workspace, bytes, nullptr), CUFLASH_STATUS_SUCCESS)
          << cuflashGetLastErrorMessage();
    }
  }
}

}  // namespace
}  // namespace cuflash::test
