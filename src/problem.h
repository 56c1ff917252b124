// SPDX-License-Identifier: MIT
// A validated call: what the dispatch decides on. Nothing in it is optional or defaulted any more.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuflash/cuflash.h"
#include "kernels/kernel_args.h"
#include "memory_ranges.h"

namespace cuflash {

// Sets are the bit masks of the public header, CUFLASH_FEATURE_... and CUFLASH_DTYPE_BIT_...
using FeatureSet = int32_t;
using DTypeSet = int32_t;

struct Call {
  cuflashDataType_t dtype;
  cuflashDevice_t device;
  const char* kernel;   // forced by the call; null: not forced
  FeatureSet features;  // what the call needs of a kernel
  bool empty;           // nothing to compute and nothing to write
  MemoryRanges memory;  // what the arguments point to, as far as it is known
};

struct ForwardProblem : Call {
  static constexpr cuflashOperation_t kOperation = CUFLASH_OP_FORWARD;
  FwdArgs args;
};

struct BackwardProblem : Call {
  static constexpr cuflashOperation_t kOperation = CUFLASH_OP_BACKWARD;
  BwdArgs args;
};

inline constexpr int32_t kMaxHeadDim = 256;  // that the library accepts; each room may serve less

constexpr DTypeSet dtype_bit(cuflashDataType_t dtype) {
  switch (dtype) {
    case CUFLASH_R_32F: return CUFLASH_DTYPE_BIT_32F;
    case CUFLASH_R_16F: return CUFLASH_DTYPE_BIT_16F;
    case CUFLASH_R_16BF: return CUFLASH_DTYPE_BIT_16BF;
    default: return 0;
  }
}

inline constexpr DTypeSet k16BitDTypes = CUFLASH_DTYPE_BIT_16F | CUFLASH_DTYPE_BIT_16BF;
inline constexpr DTypeSet kAllDTypes = CUFLASH_DTYPE_BIT_32F | k16BitDTypes;

constexpr int64_t dtype_size(cuflashDataType_t dtype) { return dtype == CUFLASH_R_32F ? 4 : 2; }

constexpr const char* dtype_name(cuflashDataType_t dtype) {
  switch (dtype) {
    case CUFLASH_R_32F: return "fp32";
    case CUFLASH_R_16F: return "fp16";
    case CUFLASH_R_16BF: return "bf16";
    default: return "?";
  }
}

constexpr const char* feature_name(FeatureSet bit) {
  switch (bit) {
    case CUFLASH_FEATURE_CAUSAL: return "causal";
    case CUFLASH_FEATURE_WINDOW: return "window";
    case CUFLASH_FEATURE_TOP_LEFT: return "top_left";
    case CUFLASH_FEATURE_GQA: return "gqa";
    case CUFLASH_FEATURE_VARLEN: return "varlen";
    case CUFLASH_FEATURE_SEQUSED: return "seqused";
    case CUFLASH_FEATURE_SOFTCAP: return "softcap";
    case CUFLASH_FEATURE_ALIBI: return "alibi";
    case CUFLASH_FEATURE_HEAD_DIM_V: return "head_dim_v";
    case CUFLASH_FEATURE_UNALIGNED: return "unaligned";
    case CUFLASH_FEATURE_NEGATIVE_SCALE: return "negative_scale";
    case CUFLASH_FEATURE_DLSE: return "dlse";
    case CUFLASH_FEATURE_DETERMINISTIC: return "deterministic";
    default: return "?";
  }
}

inline constexpr FeatureSet kForwardFeatures = CUFLASH_FEATURE_DLSE - 1;
inline constexpr FeatureSet kBackwardFeatures = 2 * CUFLASH_FEATURE_DETERMINISTIC - 1;

}  // namespace cuflash
