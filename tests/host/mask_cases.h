// SPDX-License-Identifier: MIT
// Every mask over small lengths, with the definition in the public header to compare with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "calls.h"
#include "kernels/common/mask.h"
#include "validate.h"

namespace cuflash::test {

struct Mask {
  cuflashMask_t mask;
  int32_t window_left;
  int32_t window_right;
  cuflashAlignment_t alignment;
};

// The definition: the sentence of cuflash.h, with no arithmetic shared with the library.
inline bool sees(const Mask& m, int32_t seqlen_q, int32_t seqlen_k, int64_t row, int64_t key) {
  const int64_t off = m.alignment == CUFLASH_ALIGN_BOTTOM_RIGHT ? int64_t{seqlen_k} - seqlen_q : 0;
  switch (m.mask) {
    case CUFLASH_MASK_NONE: return true;
    case CUFLASH_MASK_CAUSAL: return key <= row + off;
    default:
      return (m.window_left == -1 || key >= row + off - m.window_left) &&
             (m.window_right == -1 || key <= row + off + m.window_right);
  }
}

// The library's form of the same, through the validation of a call.
inline Attention attention_of(const Mask& m, int32_t seqlen_q, int32_t seqlen_k) {
  auto params = shape_params<cuflashForwardParams_t>(CUFLASH_DEVICE_CUDA, {1, 1, 1, seqlen_q, seqlen_k, 8, 8});
  params.mask = m.mask;
  params.window_left = m.window_left;
  params.window_right = m.window_right;
  params.alignment = m.alignment;
  ForwardProblem problem{};
  EXPECT_TRUE(validate(params, Pointers::kOptional, &problem).ok()) << cuflashGetLastErrorMessage();
  return problem.args.attention;
}

inline std::vector<Mask> all_masks() {
  std::vector<Mask> masks;
  for (const cuflashAlignment_t alignment : {CUFLASH_ALIGN_BOTTOM_RIGHT, CUFLASH_ALIGN_TOP_LEFT}) {
    masks.push_back({CUFLASH_MASK_NONE, 0, 0, alignment});
    masks.push_back({CUFLASH_MASK_CAUSAL, 0, 0, alignment});
    const int32_t sides[] = {-1, 0, 1, 2, 3, 5, 6, 11, 12, 13, INT32_MAX};
    for (const int32_t left : sides) {
      for (const int32_t right : sides) masks.push_back({CUFLASH_MASK_WINDOW, left, right, alignment});
    }
  }
  return masks;
}

inline constexpr int32_t kMaxLength = 6;

template <class Body>
void for_each_case(Body body) {
  for (const Mask& mask : all_masks()) {
    for (int32_t seqlen_q = 1; seqlen_q <= kMaxLength; ++seqlen_q) {
      for (int32_t seqlen_k = 0; seqlen_k <= kMaxLength; ++seqlen_k) {
        const Attention a = attention_of(mask, seqlen_q, seqlen_k);
        SCOPED_TRACE(
            "mask " + std::to_string(mask.mask) + " (" + std::to_string(mask.window_left) + ", " +
            std::to_string(mask.window_right) + "), alignment " + std::to_string(mask.alignment) + ", " +
            std::to_string(seqlen_q) + " x " + std::to_string(seqlen_k)
        );
        body(mask, a, sequence_of(a, 0));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace cuflash::test
