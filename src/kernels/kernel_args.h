// SPDX-License-Identifier: MIT
// What a kernel receives: plain data, normalised by validate.cpp. Nothing is optional but what says "may be null".
#pragma once

#include <cstdint>

namespace cuflash {

// Strides in elements, all >= 0; the last dimension has stride 1.
struct ConstTensor {
  const void* data;
  int64_t batch_stride;  // 0 where cu_seqlens packs the rows
  int64_t row_stride;
  int64_t head_stride;
};

struct Tensor {
  void* data;
  int64_t batch_stride;
  int64_t row_stride;
  int64_t head_stride;
};

// "Unlimited" as a number of keys: larger than any distance, small enough that sums never overflow.
inline constexpr int64_t kUnlimited = int64_t{1} << 40;

// Shape, lengths, mask and score function: the same for forward and backward, and for every room.
struct Attention {
  int32_t batch;
  int32_t num_heads;
  int32_t num_heads_k;
  int32_t seqlen_q;  // of every entry, or an upper bound with cu_seqlens_q
  int32_t seqlen_k;
  int32_t head_dim;      // of q, k
  int32_t head_dim_v;    // of v, o; never 0 here
  int32_t bottom_right;  // 1: off = len_k - len_q; 0: off = 0
  int64_t window_left;   // >= 0; kUnlimited for none
  int64_t window_right;
  float scale;    // never the default 0 of the parameter struct: resolved
  float softcap;  // 0: none
  int64_t total_q;
  int64_t total_k;
  const int32_t* cu_seqlens_q;  // (batch + 1), may be null
  const int32_t* cu_seqlens_k;  // (batch + 1), may be null
  const int32_t* seqused_q;     // (batch), may be null
  const int32_t* seqused_k;     // (batch), may be null
  const float* alibi_slopes;    // (batch, num_heads) by alibi_batch_stride, may be null
  int64_t alibi_batch_stride;
};

struct FwdArgs {
  Attention attention;
  ConstTensor q;  // (batch, seqlen_q, num_heads,   head_dim)
  ConstTensor k;  // (batch, seqlen_k, num_heads_k, head_dim)
  ConstTensor v;  // (batch, seqlen_k, num_heads_k, head_dim_v)
  Tensor o;       // (batch, seqlen_q, num_heads,   head_dim_v)
  float* lse;     // (batch, num_heads, seqlen_q) or (num_heads, total_q), may be null
};

struct BwdArgs {
  Attention attention;
  ConstTensor q;       // (batch, seqlen_q, num_heads,   head_dim)
  ConstTensor k;       // (batch, seqlen_k, num_heads_k, head_dim)
  ConstTensor v;       // (batch, seqlen_k, num_heads_k, head_dim_v)
  ConstTensor o;       // (batch, seqlen_q, num_heads,   head_dim_v)
  ConstTensor dout;    // (batch, seqlen_q, num_heads,   head_dim_v)
  const float* lse;    // (batch, num_heads, seqlen_q) or (num_heads, total_q)
  const float* dlse;   // same layout, may be null
  Tensor dq;           // as q
  Tensor dk;           // as k
  Tensor dv;           // as v
  bool deterministic;  // bitwise repeatable
};

}  // namespace cuflash
