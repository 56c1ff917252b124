// SPDX-License-Identifier: MIT
#include "attention.h"

#include <memory>
#include <string>

#include "failure.h"

namespace cuflash::bench {
namespace {

template <class Params>
void set_shape(Params& params, const Case& c, cuflashDevice_t device, const char* kernel) {
  params.struct_size = sizeof(Params);
  params.dtype = c.dtype;
  params.device = device;
  params.batch = c.batch;
  params.num_heads = c.num_heads;
  params.num_heads_k = c.num_heads_k;
  params.seqlen_q = c.seqlen_q;
  params.seqlen_k = c.seqlen_k;
  params.head_dim = c.head_dim;
  params.head_dim_v = c.head_dim_v;
  params.mask = c.mask;
  params.window_left = c.window_left;
  params.window_right = c.window_right;
  params.kernel = kernel;
}

template <class Tensor>
void set_strides(Tensor& tensor, Layout layout, int64_t rows, int64_t heads, int64_t columns) {
  tensor.batch_stride = rows * heads * columns;
  tensor.row_stride = layout == Layout::kBshd ? heads * columns : columns;
  tensor.head_stride = layout == Layout::kBshd ? columns : rows * columns;
}

Buffer make_tensor(const Case& c, cuflashDevice_t device, int64_t rows, int64_t heads, int64_t columns) {
  return Buffer(static_cast<size_t>(c.batch * rows * heads * columns * element_bytes(c.dtype)), device);
}

// What the library chooses on a GPU; on the host there is one kernel, and CUFLASH_KERNEL must not get in its way.
const char* default_kernel(cuflashDevice_t device) { return device == CUFLASH_DEVICE_HOST ? "host" : nullptr; }

}  // namespace

cuflashForwardParams_t forward_params(const Case& c, cuflashDevice_t device, Layout layout, const char* kernel) {
  cuflashForwardParams_t params{};
  set_shape(params, c, device, kernel);
  set_strides(params.q, layout, c.seqlen_q, c.num_heads, c.head_dim);
  set_strides(params.k, layout, c.seqlen_k, c.num_heads_k, c.head_dim);
  set_strides(params.v, layout, c.seqlen_k, c.num_heads_k, c.head_dim_v);
  set_strides(params.o, layout, c.seqlen_q, c.num_heads, c.head_dim_v);
  return params;
}

cuflashBackwardParams_t backward_params(const Case& c, cuflashDevice_t device, Layout layout, const char* kernel) {
  cuflashBackwardParams_t params{};
  set_shape(params, c, device, kernel);
  set_strides(params.q, layout, c.seqlen_q, c.num_heads, c.head_dim);
  set_strides(params.k, layout, c.seqlen_k, c.num_heads_k, c.head_dim);
  set_strides(params.v, layout, c.seqlen_k, c.num_heads_k, c.head_dim_v);
  set_strides(params.o, layout, c.seqlen_q, c.num_heads, c.head_dim_v);
  set_strides(params.dout, layout, c.seqlen_q, c.num_heads, c.head_dim_v);
  set_strides(params.dq, layout, c.seqlen_q, c.num_heads, c.head_dim);
  set_strides(params.dk, layout, c.seqlen_k, c.num_heads_k, c.head_dim);
  set_strides(params.dv, layout, c.seqlen_k, c.num_heads_k, c.head_dim_v);
  return params;
}

Attention::Attention(const Case& c, cuflashDevice_t where, Layout order) : problem(c), device(where), layout(order) {
  q = make_tensor(c, device, c.seqlen_q, c.num_heads, c.head_dim);
  k = make_tensor(c, device, c.seqlen_k, c.num_heads_k, c.head_dim);
  v = make_tensor(c, device, c.seqlen_k, c.num_heads_k, c.head_dim_v);
  o = make_tensor(c, device, c.seqlen_q, c.num_heads, c.head_dim_v);
  lse = Buffer(sizeof(float) * static_cast<size_t>(int64_t{c.batch} * c.num_heads * c.seqlen_q), device);
  q.fill_normal(c.dtype, 1);
  k.fill_normal(c.dtype, 2);
  v.fill_normal(c.dtype, 3);
  if (c.operation == CUFLASH_OP_FORWARD) return;

  dout = make_tensor(c, device, c.seqlen_q, c.num_heads, c.head_dim_v);
  dq = make_tensor(c, device, c.seqlen_q, c.num_heads, c.head_dim);
  dk = make_tensor(c, device, c.seqlen_k, c.num_heads_k, c.head_dim);
  dv = make_tensor(c, device, c.seqlen_k, c.num_heads_k, c.head_dim_v);
  dout.fill_normal(c.dtype, 4);

  const cuflashForwardParams_t params = forward(default_kernel(device));
  size_t workspace_bytes = 0;
  require(cuflashForwardGetWorkspaceSize(&params, &workspace_bytes), "cuflashForwardGetWorkspaceSize");
  const Buffer workspace(workspace_bytes, device);
  require(cuflashForward(&params, workspace.data(), workspace_bytes, nullptr), "cuflashForward");
  if (device == CUFLASH_DEVICE_CUDA) require(cudaDeviceSynchronize(), "cudaDeviceSynchronize after cuflashForward");
}

cuflashForwardParams_t Attention::forward(const char* kernel) const {
  cuflashForwardParams_t params = forward_params(problem, device, layout, kernel);
  params.q.data = q.data();
  params.k.data = k.data();
  params.v.data = v.data();
  params.o.data = o.data();
  params.softmax_lse = static_cast<float*>(lse.data());
  return params;
}

cuflashBackwardParams_t Attention::backward(const char* kernel) const {
  cuflashBackwardParams_t params = backward_params(problem, device, layout, kernel);
  params.q.data = q.data();
  params.k.data = k.data();
  params.v.data = v.data();
  params.o.data = o.data();
  params.softmax_lse = static_cast<const float*>(lse.data());
  params.dout.data = dout.data();
  params.dq.data = dq.data();
  params.dk.data = dk.data();
  params.dv.data = dv.data();
  return params;
}

void Attention::poison_outputs() {
  if (problem.operation == CUFLASH_OP_FORWARD) {
    o.poison();
    lse.poison();
  } else {
    dq.poison();
    dk.poison();
    dv.poison();
  }
}

PreparedCall prepare_library_call(const Attention& attention, const char* kernel) {
  struct State {
    std::string kernel;
    Buffer workspace;
  };
  const auto state = std::make_shared<State>();
  if (kernel != nullptr) state->kernel = kernel;
  const char* name = kernel != nullptr ? state->kernel.c_str() : nullptr;
  size_t bytes = 0;

  if (attention.problem.operation == CUFLASH_OP_FORWARD) {
    const cuflashForwardParams_t params = attention.forward(name);
    require(cuflashForwardGetWorkspaceSize(&params, &bytes), "cuflashForwardGetWorkspaceSize");
    require(cuflashForwardPreload(&params), "cuflashForwardPreload");
    state->workspace = Buffer(bytes, attention.device);
    const auto call = [state, params](cudaStream_t stream) {
      require(cuflashForward(&params, state->workspace.data(), state->workspace.bytes(), stream), "cuflashForward");
    };
    return {call, bytes};
  }
  const cuflashBackwardParams_t params = attention.backward(name);
  require(cuflashBackwardGetWorkspaceSize(&params, &bytes), "cuflashBackwardGetWorkspaceSize");
  require(cuflashBackwardPreload(&params), "cuflashBackwardPreload");
  state->workspace = Buffer(bytes, attention.device);
  const auto call = [state, params](cudaStream_t stream) {
    require(cuflashBackward(&params, state->workspace.data(), state->workspace.bytes(), stream), "cuflashBackward");
  };
  return {call, bytes};
}

}  // namespace cuflash::bench
