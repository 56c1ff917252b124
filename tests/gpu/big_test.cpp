// SPDX-License-Identifier: MIT
// Extents and strides at which 16-bit and 32-bit arithmetic ends.
#include <gtest/gtest.h>

#include "kernel_cases.h"
#include "stream.h"
#include "support/compare.h"

namespace cuflash::test {
namespace {

TEST(BigTest, ManyHeadsAndEntries) {
  expect_conformance(
      {"op=fwd dtype=bf16 b=1 h=71280 hk=71280 sq=2 sk=3 d=8",
       "op=bwd dtype=bf16 b=1 h=71280 hk=71280 sq=2 sk=3 d=8",
       "op=fwd dtype=fp16 b=70000 h=1 hk=1 sq=1 sk=2 d=8 mask=causal",
       "op=bwd dtype=fp16 b=70000 h=1 hk=1 sq=1 sk=2 d=8 mask=causal",
       "op=fwd dtype=bf16 b=80000 h=2 hk=1 sq=3 sk=3 d=8 packed_q=1 packed_k=1",
       "op=bwd dtype=bf16 b=80000 h=2 hk=1 sq=3 sk=3 d=8 packed_q=1 packed_k=1",
       "op=fwd dtype=fp32 b=1048577 h=1 hk=1 sq=1 sk=1 d=4",  // a million entries of one row
       "op=bwd dtype=fp32 b=1048577 h=1 hk=1 sq=1 sk=1 d=4",
       "op=fwd dtype=bf16 b=1100 h=1000 hk=1000 sq=1 sk=2 d=4",
       "op=bwd dtype=bf16 b=1100 h=1000 hk=1000 sq=1 sk=2 d=4"}
  );
}

TEST(BigTest, ManyRowsAndKeys) {
  expect_conformance(
      {"op=fwd dtype=bf16 b=1 h=1 hk=1 sq=1000003 sk=3 d=8",
       "op=bwd dtype=bf16 b=1 h=1 hk=1 sq=1000003 sk=3 d=8",
       "op=fwd dtype=fp16 b=1 h=2 hk=1 sq=3 sk=1000003 d=8",
       "op=bwd dtype=fp16 b=1 h=2 hk=1 sq=3 sk=1000003 d=8",
       "op=fwd dtype=bf16 b=1 h=1 hk=1 sq=300000 sk=300000 d=8 mask=window wl=2 wr=0 packed_q=1 packed_k=1 "
       "lengths_q=300000 lengths_k=7",
       "op=fwd dtype=bf16 b=1 h=1 hk=1 sq=3 sk=70000 d=64 mask=causal align=top_left"}
  );
}

// ---- Strides beyond 2^31 elements. One tensor of a small case moves into a huge allocation; bits must not change.

// The small case has 2 entries, 2 heads and 2 rows: each extent can be the one with the huge stride.
constexpr const char* kSmall = "b=2 h=2 hk=2 sq=2 sk=2 d=16";
constexpr int64_t kHugeStride = (int64_t{1} << 31) + 64;
constexpr int64_t kElements = kHugeStride + 4 * 64;

struct Strides {
  int64_t batch, row, head;
};
constexpr Strides kStrides[] = {{kHugeStride, 64, 16}, {64, kHugeStride, 16}, {64, 16, kHugeStride}};

class HugeBuffer {
 public:
  explicit HugeBuffer(DType dtype) : bytes_(static_cast<size_t>(kElements) * size_of(dtype)) {
    if (cudaMalloc(&data_, bytes_) != cudaSuccess) {
      data_ = nullptr;
      static_cast<void>(cudaGetLastError());
    }
  }
  ~HugeBuffer() { cudaFree(data_); }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }

  // A 32-bit offset that wraps round lands in NaN.
  void poison() const { check_cuda(cudaMemset(data_, 0xFF, bytes_), "cudaMemset"); }

 private:
  size_t bytes_;
  void* data_ = nullptr;
};

// Copies the eight rows of a tensor between its place in the small case and the huge buffer.
void copy_rows(
    const View& view, DType dtype, std::byte* small, std::byte* huge, const Strides& strides, bool into_huge
) {
  const size_t element = size_of(dtype);
  for (int64_t entry = 0; entry < 2; ++entry) {
    for (int64_t row = 0; row < 2; ++row) {
      for (int32_t head = 0; head < 2; ++head) {
        std::byte* near = small + static_cast<size_t>(view.offset(entry, row, head)) * element;
        std::byte* far =
            huge + static_cast<size_t>(entry * strides.batch + row * strides.row + head * strides.head) * element;
        check_cuda(
            cudaMemcpy(into_huge ? far : near, into_huge ? near : far, 16 * element, cudaMemcpyDeviceToDevice),
            "cudaMemcpy"
        );
      }
    }
  }
}

void set_tensor(Buffer buffer, const cuflashTensor_t& tensor, cuflashForwardParams_t* p) {
  const cuflashConstTensor_t input = {tensor.data, tensor.batch_stride, tensor.row_stride, tensor.head_stride};
  switch (buffer) {
    case Buffer::kQ: p->q = input; break;
    case Buffer::kK: p->k = input; break;
    case Buffer::kV: p->v = input; break;
    default: p->o = tensor; break;
  }
}

void set_tensor(Buffer buffer, const cuflashTensor_t& tensor, cuflashBackwardParams_t* p) {
  const cuflashConstTensor_t input = {tensor.data, tensor.batch_stride, tensor.row_stride, tensor.head_stride};
  switch (buffer) {
    case Buffer::kQ: p->q = input; break;
    case Buffer::kK: p->k = input; break;
    case Buffer::kV: p->v = input; break;
    case Buffer::kO: p->o = input; break;
    case Buffer::kDout: p->dout = input; break;
    case Buffer::kDq: p->dq = tensor; break;
    case Buffer::kDk: p->dk = tensor; break;
    default: p->dv = tensor; break;
  }
}

struct Moved {
  Op op;
  View Geometry::*view;
  bool is_output;
};

constexpr Moved kMoved[] = {
    {Op::kForward, &Geometry::tensor_q, false},
    {Op::kForward, &Geometry::tensor_k, false},
    {Op::kForward, &Geometry::tensor_v, false},
    {Op::kForward, &Geometry::tensor_o, true},
    {Op::kBackward, &Geometry::tensor_q, false},
    {Op::kBackward, &Geometry::tensor_k, false},
    {Op::kBackward, &Geometry::tensor_v, false},
    {Op::kBackward, &Geometry::tensor_o, false},
    {Op::kBackward, &Geometry::tensor_dout, false},
    {Op::kBackward, &Geometry::tensor_dq, true},
    {Op::kBackward, &Geometry::tensor_dk, true},
    {Op::kBackward, &Geometry::tensor_dv, true}};

void expect_same_bits_with_huge_strides(const KernelCase& kernel_case, const Moved& moved, const HugeBuffer& huge) {
  const DType dtype = kernel_case.scenario.c.dtype;
  const View& view = kernel_case.scenario.geometry.*moved.view;
  for (const Strides& strides : kStrides) {
    OwnExecution own(kernel_case);
    Execution& execution = own.execution();
    std::byte* small = execution.addresses()[static_cast<size_t>(view.buffer)];
    huge.poison();
    if (!moved.is_output) {
      copy_rows(view, dtype, small, huge.data(), strides, /*into_huge=*/true);
      check_cuda(cudaMemset(small, 0xFF, kernel_case.scenario.geometry.segment(view.buffer).bytes), "cudaMemset");
    }
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    Call call = execution.call();
    const cuflashTensor_t tensor = {huge.data(), strides.batch, strides.row, strides.head};
    if (call.op == Op::kForward) {
      set_tensor(view.buffer, tensor, &call.forward);
    } else {
      set_tensor(view.buffer, tensor, &call.backward);
    }
    ASSERT_EQ(call.run(execution.workspace(), execution.workspace_bytes(), nullptr), CUFLASH_STATUS_SUCCESS)
        << cuflashGetLastErrorMessage();
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    copy_rows(view, dtype, small, huge.data(), strides, /*into_huge=*/false);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    EXPECT_EQ(execution.read(), kernel_case.expected)
        << "buffer " << static_cast<int>(view.buffer) << " with strides " << strides.batch << ", " << strides.row
        << ", " << strides.head << repro(kernel_case.scenario.c, kernel_case.kernel.name);
  }
}

TEST(BigTest, StridesBeyond32Bits) {
  for (const KernelCase& kernel_case : kernel_cases({kSmall})) {
    const HugeBuffer huge(kernel_case.scenario.c.dtype);
    if (huge.data() == nullptr) {
      size_t free = 0, total = 0;
      check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
      GTEST_SKIP() << "strides of " << to_string(kernel_case.scenario.c) << " need " << huge.bytes()
                   << " bytes of device memory in one piece: " << free << " of " << total << " are free";
    }
    for (const Moved& moved : kMoved) {
      if (moved.op == kernel_case.kernel.op) expect_same_bits_with_huge_strides(kernel_case, moved, huge);
    }
  }
}

}  // namespace
}  // namespace cuflash::test
