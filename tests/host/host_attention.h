// SPDX-License-Identifier: MIT
// One attention over contiguous tensors in host memory, run through the C ABI. The caller sets the shape, fills the
// inputs and reads the outputs, which hold poison until they are written.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuflash/cuflash.h"
#include "support/dtype.h"

namespace cuflash::test {

class HostAttention {
 public:
  using Bytes = std::vector<std::byte>;
  static constexpr auto kPoison = std::byte{0xA5};

  // Takes everything but device, tensors and lse from `shape`.
  explicit HostAttention(const cuflashForwardParams_t& shape) : params_(shape) {
    if (params_.head_dim_v == 0) params_.head_dim_v = params_.head_dim;
    const int64_t rows_q = shape.cu_seqlens_q != nullptr ? shape.total_q : int64_t{shape.batch} * shape.seqlen_q;
    const int64_t rows_k = shape.cu_seqlens_k != nullptr ? shape.total_k : int64_t{shape.batch} * shape.seqlen_k;
    q = tensor(rows_q * shape.num_heads * shape.head_dim);
    k = tensor(rows_k * shape.num_heads_k * shape.head_dim);
    v = tensor(rows_k * shape.num_heads_k * params_.head_dim_v);
    o = tensor(rows_q * shape.num_heads * params_.head_dim_v);
    dout = o;
    dq = q;
    dk = k;
    dv = v;
    lse.assign(static_cast<size_t>(rows_q * shape.num_heads), poison_value());
  }

  DType dtype() const { return static_cast<DType>(params_.dtype); }
  double get(const Bytes& tensor, size_t index) const { return load(dtype(), &tensor[index * size_of(dtype())]); }
  void set(Bytes& tensor, size_t index, float value) const { store(dtype(), &tensor[index * size_of(dtype())], value); }
  size_t count(const Bytes& tensor) const { return tensor.size() / size_of(dtype()); }

  // What an element of a tensor of this dtype holds if nobody wrote it.
  bool is_poison(const Bytes& tensor, size_t index) const {
    const size_t size = size_of(dtype());
    return Bytes(&tensor[index * size], &tensor[index * size] + size) == Bytes(size, kPoison);
  }
  static float poison_value() { return std::bit_cast<float>(0xA5A5A5A5u); }

  void forward() {
    cuflashForwardParams_t p = params_;
    p.struct_size = sizeof(p);
    p.device = CUFLASH_DEVICE_HOST;
    set_inputs(p);
    p.o = output(o, p.seqlen_q, p.num_heads, p.head_dim_v);
    p.softmax_lse = lse.data();
    ASSERT_EQ(cuflashForward(&p, nullptr, 0, nullptr), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
  }

  void backward() {
    cuflashBackwardParams_t p = {};
    p.struct_size = sizeof(p);
    p.dtype = params_.dtype;
    p.device = CUFLASH_DEVICE_HOST;
    p.batch = params_.batch;
    p.num_heads = params_.num_heads;
    p.num_heads_k = params_.num_heads_k;
    p.seqlen_q = params_.seqlen_q;
    p.seqlen_k = params_.seqlen_k;
    p.head_dim = params_.head_dim;
    p.head_dim_v = params_.head_dim_v;
    p.mask = params_.mask;
    p.alignment = params_.alignment;
    p.window_left = params_.window_left;
    p.window_right = params_.window_right;
    p.softmax_scale = params_.softmax_scale;
    p.softcap = params_.softcap;
    p.deterministic = 1;
    p.total_q = params_.total_q;
    p.total_k = params_.total_k;
    p.cu_seqlens_q = params_.cu_seqlens_q;
    p.cu_seqlens_k = params_.cu_seqlens_k;
    p.seqused_q = params_.seqused_q;
    p.seqused_k = params_.seqused_k;
    p.alibi_slopes = params_.alibi_slopes;
    p.alibi_batch_stride = params_.alibi_batch_stride;
    set_inputs(p);
    p.o = input(o, p.seqlen_q, p.num_heads, p.head_dim_v);
    p.dout = input(dout, p.seqlen_q, p.num_heads, p.head_dim_v);
    p.softmax_lse = lse.data();
    p.dlse = dlse.empty() ? nullptr : dlse.data();
    p.dq = output(dq, p.seqlen_q, p.num_heads, p.head_dim);
    p.dk = output(dk, p.seqlen_k, p.num_heads_k, p.head_dim);
    p.dv = output(dv, p.seqlen_k, p.num_heads_k, p.head_dim_v);
    ASSERT_EQ(cuflashBackward(&p, nullptr, 0, nullptr), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
  }

  Bytes q, k, v, o, dout, dq, dk, dv;
  std::vector<float> lse;
  std::vector<float> dlse;  // empty: none

 private:
  Bytes tensor(int64_t elements) const { return Bytes(static_cast<size_t>(elements) * size_of(dtype()), kPoison); }

  template <class Params>
  void set_inputs(Params& p) const {
    p.q = input(q, p.seqlen_q, p.num_heads, p.head_dim);
    p.k = input(k, p.seqlen_k, p.num_heads_k, p.head_dim);
    p.v = input(v, p.seqlen_k, p.num_heads_k, p.head_dim_v);
  }

  // Strides of (batch, rows, heads, dim); batch_stride is ignored where the rows are packed.
  static cuflashConstTensor_t input(const Bytes& bytes, int64_t rows, int64_t heads, int64_t dim) {
    return {bytes.data(), rows * heads * dim, heads * dim, dim};
  }
  static cuflashTensor_t output(Bytes& bytes, int64_t rows, int64_t heads, int64_t dim) {
    return {bytes.data(), rows * heads * dim, heads * dim, dim};
  }

  cuflashForwardParams_t params_;
};

}  // namespace cuflash::test
