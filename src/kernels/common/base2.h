// SPDX-License-Identifier: MIT
// Constants of a softmax that keeps its scores in base 2.
#pragma once

namespace cuflash {

inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// How far, in powers of 2, a running maximum may fall behind the true one before everything is scaled anew: weights of up to
// 2^8 do fp16, bf16 and fp32 sums no harm (FlashAttention-4 does the same).
inline constexpr float kMaxGrowth = 8.0f;

}  // namespace cuflash
