// SPDX-License-Identifier: MIT
// Small valid calls over real host buffers, and the exported functions of both operations under one name, so that a
// test is written once for forward and backward.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cuflash/cuflash.h"

namespace cuflash::test {

inline constexpr unsigned char kPoison = 0xA5;

// Bytes at a 256-byte aligned address, so that the workspace fits too, poisoned until filled.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_(bytes), data_(allocate(bytes)) { poison(); }

  void* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  size_t bytes() const { return bytes_; }

  void poison() { std::fill_n(data_.get(), bytes_, kPoison); }
  bool is_poisoned() const {
    return std::all_of(data_.get(), data_.get() + bytes_, [](unsigned char byte) { return byte == kPoison; });
  }

 private:
  struct Free {
    void operator()(unsigned char* data) const { std::free(data); }
  };
  static unsigned char* allocate(size_t bytes) {
    constexpr size_t kAlignment = 256;
    const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    return static_cast<unsigned char*>(std::aligned_alloc(kAlignment, rounded));
  }

  size_t bytes_;
  std::unique_ptr<unsigned char[], Free> data_;
};

struct Shape {
  int32_t batch = 2;
  int32_t num_heads = 4;
  int32_t num_heads_k = 2;
  int32_t seqlen_q = 5;
  int32_t seqlen_k = 7;
  int32_t head_dim = 8;
  int32_t head_dim_v = 8;
};

template <class Params>
struct Api;

template <>
struct Api<cuflashForwardParams_t> {
  static constexpr char kName[] = "forward";
  static constexpr cuflashOperation_t kOperation = CUFLASH_OP_FORWARD;
  static constexpr auto init = cuflashForwardParamsInit;
  static constexpr auto workspace_size = cuflashForwardGetWorkspaceSize;
  static constexpr auto run = cuflashForward;
  static constexpr auto explain = cuflashForwardExplain;
  static constexpr auto preload = cuflashForwardPreload;
};

template <>
struct Api<cuflashBackwardParams_t> {
  static constexpr char kName[] = "backward";
  static constexpr cuflashOperation_t kOperation = CUFLASH_OP_BACKWARD;
  static constexpr auto init = cuflashBackwardParamsInit;
  static constexpr auto workspace_size = cuflashBackwardGetWorkspaceSize;
  static constexpr auto run = cuflashBackward;
  static constexpr auto explain = cuflashBackwardExplain;
  static constexpr auto preload = cuflashBackwardPreload;
};

// Names of the library's GPU kernels for this operation.
template <class Params>
std::vector<const char*> gpu_kernels() {
  std::vector<const char*> names;
  cuflashKernelInfo_t info{};
  info.struct_size = sizeof(info);
  for (int32_t index = 0; cuflashGetKernelInfo(index, &info) == CUFLASH_STATUS_SUCCESS; ++index) {
    if (info.device == CUFLASH_DEVICE_CUDA && info.operation == Api<Params>::kOperation) names.push_back(info.name);
  }
  return names;
}

// Params for a contiguous (batch, rows, heads, dim) problem, all data pointers null.
template <class Params>
Params shape_params(cuflashDevice_t device, const Shape& s, cuflashDataType_t dtype = CUFLASH_R_32F) {
  Params p{};
  p.struct_size = sizeof(p);
  p.dtype = dtype;
  p.device = device;
  p.batch = s.batch;
  p.num_heads = s.num_heads;
  p.num_heads_k = s.num_heads_k;
  p.seqlen_q = s.seqlen_q;
  p.seqlen_k = s.seqlen_k;
  p.head_dim = s.head_dim;
  p.head_dim_v = s.head_dim_v;
  const auto contiguous = [](auto* tensor, int64_t rows, int64_t heads, int64_t dim) {
    tensor->batch_stride = rows * heads * dim;
    tensor->row_stride = heads * dim;
    tensor->head_stride = dim;
  };
  contiguous(&p.q, s.seqlen_q, s.num_heads, s.head_dim);
  contiguous(&p.k, s.seqlen_k, s.num_heads_k, s.head_dim);
  contiguous(&p.v, s.seqlen_k, s.num_heads_k, s.head_dim_v);
  contiguous(&p.o, s.seqlen_q, s.num_heads, s.head_dim_v);
  if constexpr (std::is_same_v<Params, cuflashBackwardParams_t>) {
    contiguous(&p.dout, s.seqlen_q, s.num_heads, s.head_dim_v);
    contiguous(&p.dq, s.seqlen_q, s.num_heads, s.head_dim);
    contiguous(&p.dk, s.seqlen_k, s.num_heads_k, s.head_dim);
    contiguous(&p.dv, s.seqlen_k, s.num_heads_k, s.head_dim_v);
  }
  return p;
}

// Never dereferenced: the fake runtime runs no kernel. Far apart, so that no two tensors can overlap.
template <class Params>
void set_fake_addresses(Params* p) {
  constexpr uintptr_t kApart = uintptr_t{1} << 59;
  uintptr_t next = kApart;
  const auto take = [&next] {
    const uintptr_t address = next;
    next += kApart;
    return reinterpret_cast<void*>(address);
  };
  p->q.data = take();
  p->k.data = take();
  p->v.data = take();
  p->o.data = take();
  p->softmax_lse = static_cast<float*>(take());
  if constexpr (std::is_same_v<Params, cuflashBackwardParams_t>) {
    p->dout.data = take();
    p->dq.data = take();
    p->dk.data = take();
    p->dv.data = take();
  }
}

// A fp32 call with every buffer it needs. Inputs hold small numbers, outputs and workspace are poisoned.
template <class Params>
class SmallCall {
 public:
  explicit SmallCall(cuflashDevice_t device, const Shape& s = {})
      : params(shape_params<Params>(device, s)), workspace(kWorkspaceBytes) {
    const int64_t q = int64_t{s.batch} * s.seqlen_q * s.num_heads, k = int64_t{s.batch} * s.seqlen_k * s.num_heads_k;
    params.q.data = input(q * s.head_dim);
    params.k.data = input(k * s.head_dim);
    params.v.data = input(k * s.head_dim_v);
    if constexpr (std::is_same_v<Params, cuflashForwardParams_t>) {
      params.o.data = output(q * s.head_dim_v);
      params.softmax_lse = output(q);
    } else {
      params.o.data = input(q * s.head_dim_v);
      params.dout.data = input(q * s.head_dim_v);
      params.softmax_lse = input(q);
      params.dq.data = output(q * s.head_dim);
      params.dk.data = output(k * s.head_dim);
      params.dv.data = output(k * s.head_dim_v);
    }
  }

  cuflashStatus_t workspace_size(size_t* bytes) const { return Api<Params>::workspace_size(&params, bytes); }
  cuflashStatus_t run(cuflashStream_t stream = nullptr) const {
    return Api<Params>::run(&params, workspace.data(), workspace.bytes(), stream);
  }
  cuflashStatus_t preload() const { return Api<Params>::preload(&params); }
  cuflashStatus_t explain(std::string* text) const {
    size_t size = 0;
    char buffer[4096];
    const cuflashStatus_t status = Api<Params>::explain(&params, buffer, sizeof(buffer), &size);
    if (size > 0) *text = buffer;
    return status;
  }

  bool outputs_untouched() const {
    return workspace.is_poisoned() &&
           std::all_of(outputs_.begin(), outputs_.end(), [](const Buffer& b) { return b.is_poisoned(); });
  }
  const std::vector<Buffer>& outputs() const { return outputs_; }

  Params params;
  Buffer workspace;

 private:
  static constexpr size_t kWorkspaceBytes = 2 << 20;  // a backward pass may keep a row of fp32 sums per query row

  float* input(int64_t count) {
    Buffer& buffer = inputs_.emplace_back(static_cast<size_t>(count) * sizeof(float));
    for (int64_t i = 0; i < count; ++i) buffer.as<float>()[i] = 0.125f * static_cast<float>(i % 17 - 8);
    return buffer.as<float>();
  }
  float* output(int64_t count) {
    return outputs_.emplace_back(static_cast<size_t>(count) * sizeof(float)).template as<float>();
  }

  std::vector<Buffer> inputs_;
  std::vector<Buffer> outputs_;
};

}  // namespace cuflash::test
