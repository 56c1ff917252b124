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

// ---- Huge strides. One tensor of a small case moves into a huge allocation; bits must not change.

constexpr int32_t kDim = 16;

// A case with as many entries as heads and rows, so that each of them can be the one with the huge stride.
struct HugeStride {
  int32_t extent;
  int64_t stride;

  std::string line() const {
    const std::string n = std::to_string(extent);
    return "b=" + n + " h=" + n + " hk=" + n + " sq=" + n + " sk=" + n + " d=" + std::to_string(kDim);
  }
  int64_t elements() const { return (extent - 1) * stride + int64_t{extent} * extent * kDim; }
};

struct Strides {
  int64_t batch, row, head;
};

std::vector<Strides> strides_of(const HugeStride& huge) {
  const int64_t line = int64_t{huge.extent} * kDim;
  return {{huge.stride, line, kDim}, {line, huge.stride, kDim}, {line, kDim, huge.stride}};
}

class HugeBuffer {
 public:
  explicit HugeBuffer(size_t bytes) : bytes_(bytes) {
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

// Copies the rows of a tensor between its place in the small case and the huge buffer.
void copy_rows(
    const View& view, const Case& c, std::byte* small, std::byte* huge, const Strides& strides, bool into_huge
) {
  const size_t element = size_of(c.dtype);
  for (int64_t entry = 0; entry < c.batch; ++entry) {
    for (int64_t row = 0; row < c.seqlen_q; ++row) {
      for (int32_t head = 0; head < c.heads; ++head) {
        std::byte* near = small + static_cast<size_t>(view.offset(entry, row, head)) * element;
        std::byte* far =
            huge + static_cast<size_t>(entry * strides.batch + row * strides.row + head * strides.head) * element;
        check_cuda(
            cudaMemcpyAsync(
                into_huge ? far : near, into_huge ? near : far, kDim * element, cudaMemcpyDeviceToDevice, nullptr
            ),
            "cudaMemcpyAsync"
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

void expect_same_bits_when_moved(
    const KernelCase& kernel_case, const Moved& moved, const Strides& strides, const HugeBuffer& huge
) {
  const Case& c = kernel_case.scenario.c;
  const View& view = kernel_case.scenario.geometry.*moved.view;
  OwnExecution own(kernel_case);
  Execution& execution = own.execution();
  std::byte* small = execution.addresses()[static_cast<size_t>(view.buffer)];
  huge.poison();
  if (!moved.is_output) {
    copy_rows(view, c, small, huge.data(), strides, /*into_huge=*/true);
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
  copy_rows(view, c, small, huge.data(), strides, /*into_huge=*/false);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  EXPECT_EQ(execution.read(), kernel_case.expected)
      << "buffer " << static_cast<int>(view.buffer) << " with strides " << strides.batch << ", " << strides.row << ", "
      << strides.head << repro(c, kernel_case.kernel.name);
}

// Each tensor of every kernel's calls, with the huge stride between its entries, rows and heads in turn.
void expect_same_bits_with(const HugeStride& huge_stride) {
  const HugeBuffer huge(static_cast<size_t>(huge_stride.elements()) * sizeof(float));
  if (huge.data() == nullptr) {
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    GTEST_SKIP() << "strides of " << huge_stride.stride << " need " << huge.bytes()
                 << " bytes of device memory in one piece: " << free << " of " << total << " are free";
  }
  int cases = 0;
  for (const KernelCase& kernel_case : kernel_cases({huge_stride.line()})) {
    for (const Moved& moved : kMoved) {
      if (moved.op != kernel_case.kernel.op) continue;
      for (const Strides& strides : strides_of(huge_stride)) {
        expect_same_bits_when_moved(kernel_case, moved, strides, huge);
        ++cases;
      }
    }
  }
  std::printf("cases: %d\n", cases);
  testing::Test::RecordProperty("cases", cases);
}

// The stride fits into 32 bits, its products do not: twice of it is negative as int32_t, four times of it is 0.
TEST(KnownFaultsTest, StrideOf2To30WrittenToSlot0) { expect_same_bits_with({5, int64_t{1} << 30}); }

TEST(BigTest, StridesBeyond32Bits) { expect_same_bits_with({3, (int64_t{1} << 31) + 64}); }

}  // namespace
}  // namespace cuflash::test
