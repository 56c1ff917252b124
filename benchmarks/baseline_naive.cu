// SPDX-License-Identifier: MIT
// What a framework without a fused kernel does: S = scale Q K^T, P = softmax(S) in place, O = P V, each a pass over
// memory; S and P are stored in the call's dtype. Backward forms P again from lse, and dS in place of dP.
#include "baseline_naive.h"

#include <cmath>
#include <memory>

#include "elements.h"
#include "failure.h"

namespace cuflash::bench {
namespace {

constexpr int kBlock = 256;  // threads of a row
constexpr int kWarps = kBlock / 32;

struct Keys {
  int64_t begin;
  int64_t end;
};

struct RowMask {
  int32_t seqlen_q;
  int32_t seqlen_k;
  int64_t window_left;
  int64_t window_right;

  __device__ Keys visible(int64_t row) const {
    const int64_t diagonal = row + seqlen_k - seqlen_q;
    return {max(int64_t{0}, diagonal - window_left), min(int64_t{seqlen_k}, diagonal + window_right + 1)};
  }
};

__device__ float block_sum(float x) {
  __shared__ float partial[kWarps];
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  __syncthreads();  // partial may still be read from the call before
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += partial[w];
  return sum;
}

__device__ float block_max(float x) {
  __shared__ float partial[kWarps];
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  float largest = partial[0];
  for (int w = 1; w < kWarps; ++w) largest = fmaxf(largest, partial[w]);
  return largest;
}

// One block per row: s (rows, seqlen_k) becomes p, lse (rows) is written. rows = batch * num_heads * seqlen_q.
template <class T>
__global__ void softmax_kernel(T* s, float* lse, RowMask mask) {
  T* row = s + int64_t{blockIdx.x} * mask.seqlen_k;
  const Keys keys = mask.visible(blockIdx.x % mask.seqlen_q);
  float largest = -INFINITY;
  for (int64_t j = keys.begin + threadIdx.x; j < keys.end; j += kBlock) largest = fmaxf(largest, to_float(row[j]));
  largest = block_max(largest);
  float sum = 0;
  for (int64_t j = keys.begin + threadIdx.x; j < keys.end; j += kBlock) sum += __expf(to_float(row[j]) - largest);
  sum = block_sum(sum);
  const float inverse = 1.0f / sum;  // unused if the row sees no key
  for (int64_t j = threadIdx.x; j < mask.seqlen_k; j += kBlock) {
    const bool visible = j >= keys.begin && j < keys.end;
    row[j] = from_float<T>(visible ? __expf(to_float(row[j]) - largest) * inverse : 0.0f);
  }
  if (threadIdx.x == 0) lse[blockIdx.x] = keys.begin < keys.end ? largest + logf(sum) : -INFINITY;
}

// s (rows, seqlen_k) becomes p = exp(s - lse).
template <class T>
__global__ void probability_kernel(T* s, const float* lse, RowMask mask) {
  T* row = s + int64_t{blockIdx.x} * mask.seqlen_k;
  const Keys keys = mask.visible(blockIdx.x % mask.seqlen_q);
  const float row_lse = lse[blockIdx.x];
  for (int64_t j = threadIdx.x; j < mask.seqlen_k; j += kBlock) {
    const bool visible = j >= keys.begin && j < keys.end;
    row[j] = from_float<T>(visible ? __expf(to_float(row[j]) - row_lse) : 0.0f);
  }
}

// dp (rows, seqlen_k) becomes ds = p (dp - delta), with delta = dout . o over the row's head_dim_v columns.
template <class T>
__global__ void score_gradient_kernel(
    T* dp, const T* p, const T* o, const T* dout, int32_t head_dim_v, int32_t seqlen_k
) {
  const int64_t row = blockIdx.x;
  float delta = 0;
  for (int64_t c = row * head_dim_v + threadIdx.x; c < (row + 1) * head_dim_v; c += kBlock) {
    delta += to_float(dout[c]) * to_float(o[c]);
  }
  delta = block_sum(delta);
  for (int64_t j = row * seqlen_k + threadIdx.x; j < (row + 1) * seqlen_k; j += kBlock) {
    dp[j] = from_float<T>(to_float(p[j]) * (to_float(dp[j]) - delta));
  }
}

int64_t score_bytes(const Case& c) {
  return int64_t{c.batch} * c.num_heads * c.seqlen_q * c.seqlen_k * element_bytes(c.dtype);
}

// The case as matrices. A product's batch runs over all (batch entry, key head) pairs for one member g of the group of
// query heads that share a key head, so that grouped heads need no copies.
class Naive {
 public:
  Naive(const Attention& attention, const Cublas& cublas)
      : a_(attention), c_(a_.problem), cublas_(cublas), p_(static_cast<size_t>(score_bytes(c_)), CUFLASH_DEVICE_CUDA) {
    if (c_.operation == CUFLASH_OP_BACKWARD) dp_ = Buffer(static_cast<size_t>(score_bytes(c_)), CUFLASH_DEVICE_CUDA);
  }

  void forward(cudaStream_t stream) const {
    scores(stream);
    over_rows([&]<class T>(T*, unsigned grid) {
      softmax_kernel<<<grid, kBlock, 0, stream>>>(data<T>(p_), data<float>(a_.lse), mask());
    });
    const Matrices v = keys(a_.v, c_.head_dim_v);
    for (int g = 0; g < group(); ++g) {  // O = P V
      multiply(1, rows(p_, c_.seqlen_k, g), v, 0, rows(a_.o, c_.head_dim_v, g), stream);
    }
  }

  void backward(cudaStream_t stream) const {
    const float scale = default_scale();
    const Matrices k = keys(a_.k, c_.head_dim), dk = keys(a_.dk, c_.head_dim);
    const Matrices v = keys(a_.v, c_.head_dim_v), dv = keys(a_.dv, c_.head_dim_v);
    scores(stream);
    over_rows([&]<class T>(T*, unsigned grid) {
      probability_kernel<<<grid, kBlock, 0, stream>>>(data<T>(p_), data<const float>(a_.lse), mask());
    });
    for (int g = 0; g < group(); ++g) {  // dV += P^T dO, dP = dO V^T
      const Matrices dout = rows(a_.dout, c_.head_dim_v, g);
      multiply(1, rows(p_, c_.seqlen_k, g).transpose(), dout, g > 0 ? 1 : 0, dv, stream);
      multiply(1, dout, v.transpose(), 0, rows(dp_, c_.seqlen_k, g), stream);
    }
    over_rows([&]<class T>(T*, unsigned grid) {
      score_gradient_kernel<<<grid, kBlock, 0, stream>>>(
          data<T>(dp_), data<const T>(p_), data<const T>(a_.o), data<const T>(a_.dout), c_.head_dim_v, c_.seqlen_k
      );
    });
    for (int g = 0; g < group(); ++g) {  // dQ = scale dS K, dK += scale dS^T Q
      const Matrices ds = rows(dp_, c_.seqlen_k, g);
      multiply(scale, ds, k, 0, rows(a_.dq, c_.head_dim, g), stream);
      multiply(scale, ds.transpose(), rows(a_.q, c_.head_dim, g), g > 0 ? 1 : 0, dk, stream);
    }
  }

 private:
  int group() const { return c_.num_heads / c_.num_heads_k; }
  float default_scale() const { return 1.0f / std::sqrt(static_cast<float>(c_.head_dim)); }

  RowMask mask() const {
    const Window window = window_of(c_);
    return {c_.seqlen_q, c_.seqlen_k, window.left, window.right};
  }

  template <class T>
  static T* data(const Buffer& buffer) {
    return static_cast<T*>(buffer.data());
  }

  // (batch, num_heads, seqlen_q, columns): the heads of group member g.
  Matrices rows(const Buffer& buffer, int columns, int g) const {
    const int64_t head = int64_t{c_.seqlen_q} * columns;
    char* first = data<char>(buffer) + g * head * element_bytes(c_.dtype);
    return {first, c_.seqlen_q, columns, columns, group() * head};
  }

  // (batch, num_heads_k, seqlen_k, columns)
  Matrices keys(const Buffer& buffer, int columns) const {
    return {buffer.data(), c_.seqlen_k, columns, columns, int64_t{c_.seqlen_k} * columns};
  }

  void multiply(float alpha, const Matrices& a, const Matrices& b, float beta, const Matrices& c, cudaStream_t stream)
      const {
    cublas_.multiply(c_.dtype, alpha, a, b, beta, c, c_.batch * c_.num_heads_k, stream);
  }

  void scores(cudaStream_t stream) const {
    const Matrices k = keys(a_.k, c_.head_dim);
    for (int g = 0; g < group(); ++g) {  // S = scale Q K^T
      multiply(default_scale(), rows(a_.q, c_.head_dim, g), k.transpose(), 0, rows(p_, c_.seqlen_k, g), stream);
    }
  }

  template <class Launch>
  void over_rows(const Launch& launch) const {
    const auto count = static_cast<unsigned>(int64_t{c_.batch} * c_.num_heads * c_.seqlen_q);
    with_element_type(c_.dtype, [&](auto* type) { launch(type, count); });
    require(cudaGetLastError(), "launch of a naive kernel");
  }

  const Attention& a_;
  const Case& c_;
  const Cublas& cublas_;
  Buffer p_;   // (batch, num_heads, seqlen_q, seqlen_k)
  Buffer dp_;  // the same, backward only
};

}  // namespace

int64_t naive_workspace_bytes(const Case& c) { return (c.operation == CUFLASH_OP_FORWARD ? 1 : 2) * score_bytes(c); }

PreparedCall prepare_naive_call(const Attention& attention, const Cublas& cublas) {
  if (attention.layout != Layout::kBhsd) throw Failure("naive needs the layout (batch, head, row, column)");
  const auto naive = std::make_shared<const Naive>(attention, cublas);
  const auto bytes = static_cast<size_t>(naive_workspace_bytes(attention.problem));
  if (attention.problem.operation == CUFLASH_OP_FORWARD) {
    return {[naive](cudaStream_t stream) { naive->forward(stream); }, bytes};
  }
  return {[naive](cudaStream_t stream) { naive->backward(stream); }, bytes};
}

}  // namespace cuflash::bench
