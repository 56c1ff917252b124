// SPDX-License-Identifier: MIT
// What is measured: one attention problem, its name, its work and its bytes. No CUDA here: everything is tested on any
// machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "cuflash/cuflash.h"

namespace cuflash::bench {

struct Case {
  cuflashOperation_t operation = CUFLASH_OP_FORWARD;
  cuflashDataType_t dtype = CUFLASH_R_16BF;
  int32_t batch = 1;
  int32_t num_heads = 1;
  int32_t num_heads_k = 1;
  int32_t seqlen_q = 1;
  int32_t seqlen_k = 1;
  int32_t head_dim = 64;
  int32_t head_dim_v = 64;
  cuflashMask_t mask = CUFLASH_MASK_NONE;
  int32_t window_left = 0;  // as in the params struct: -1 unlimited, 0 unless mask is WINDOW
  int32_t window_right = 0;

  friend bool operator==(const Case&, const Case&) = default;
};

enum class Temperature { kCold, kHot };  // L2 flushed before each call, or left as the call before left it

// The mask as distances from the diagonal, which is bottom-right: off = seqlen_k - seqlen_q.
struct Window {
  int64_t left;
  int64_t right;
};

inline Window window_of(const Case& c) {
  constexpr int64_t kUnlimited = int64_t{1} << 40;
  switch (c.mask) {
    case CUFLASH_MASK_CAUSAL: return {kUnlimited, 0};
    case CUFLASH_MASK_WINDOW:
      return {c.window_left < 0 ? kUnlimited : c.window_left, c.window_right < 0 ? kUnlimited : c.window_right};
    default: return {kUnlimited, kUnlimited};
  }
}

// Pairs (query row, key row) of one head that the mask lets through.
inline int64_t visible_pairs(const Case& c) {
  const Window window = window_of(c);
  const int64_t offset = int64_t{c.seqlen_k} - c.seqlen_q;
  int64_t pairs = 0;
  for (int64_t row = 0; row < c.seqlen_q; ++row) {
    const int64_t first = std::max<int64_t>(0, row + offset - window.left);
    const int64_t last = std::min<int64_t>(c.seqlen_k - 1, row + offset + window.right);
    pairs += std::max<int64_t>(0, last - first + 1);
  }
  return pairs;
}

// Floating-point operations of the algorithm, the only place where they are counted: 2 per visible pair and column of
// each matrix product. Forward has one over head_dim and one over head_dim_v, so 4 b h sq sk d without a mask; backward
// has three and two, 2.5 times that where the two are equal (Dao, "FlashAttention-2", section 4). Products that a kernel
// repeats are not counted.
inline double flops(const Case& c) {
  const double pairs = double{1} * c.batch * c.num_heads * static_cast<double>(visible_pairs(c));
  const double columns =
      c.operation == CUFLASH_OP_FORWARD ? double{1} * c.head_dim + c.head_dim_v : 3.0 * c.head_dim + 2.0 * c.head_dim_v;
  return 2.0 * pairs * columns;
}

inline int64_t element_bytes(cuflashDataType_t dtype) { return dtype == CUFLASH_R_32F ? 4 : 2; }

// Bytes that must cross the memory bus: every input read once, every output written once.
inline double minimum_bytes(const Case& c) {
  const int64_t rows_q = int64_t{c.batch} * c.num_heads * c.seqlen_q;
  const int64_t rows_k = int64_t{c.batch} * c.num_heads_k * c.seqlen_k;
  const int64_t q = rows_q * c.head_dim, o = rows_q * c.head_dim_v;
  const int64_t k = rows_k * c.head_dim, v = rows_k * c.head_dim_v;
  const int64_t forward = q + k + v + o;
  const int64_t elements = c.operation == CUFLASH_OP_FORWARD ? forward : forward + o + q + k + v;  // dout; dq, dk, dv
  return static_cast<double>(elements * element_bytes(c.dtype) + rows_q * int64_t{sizeof(float)});
}

inline const char* operation_name(cuflashOperation_t operation) {
  return operation == CUFLASH_OP_FORWARD ? "fwd" : "bwd";
}

inline const char* dtype_name(cuflashDataType_t dtype) {
  switch (dtype) {
    case CUFLASH_R_32F: return "fp32";
    case CUFLASH_R_16F: return "fp16";
    default: return "bf16";
  }
}

inline const char* temperature_name(Temperature temperature) {
  return temperature == Temperature::kCold ? "cold" : "hot";
}

std::string mask_name(const Case& c);   // "full", "causal", "window_l256_r0"
std::string shape_name(const Case& c);  // "b4_h16_s4096", "b4_h16_hk2_q1_k4096"

// "fwd/scalar/bf16/d128/causal/b4_h16_s4096/cold"; a head_dim_v of its own reads "d192_v128".
std::string benchmark_name(const Case& c, const std::string& kernel, Temperature temperature);

}  // namespace cuflash::bench
