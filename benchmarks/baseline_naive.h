// SPDX-License-Identifier: MIT
// The baseline: attention with the score matrix in memory, from cuBLAS products and a softmax kernel.
#pragma once

#include "attention.h"
#include "cublas.h"

namespace cuflash::bench {

inline constexpr char kNaive[] = "naive";

// The matrices that the baseline holds beside the tensors: p, and for backward also dp.
int64_t naive_workspace_bytes(const Case& c);

// The tensors must have Layout::kBhsd, so that one strided batch is a product of all heads. cublas must outlive the
// call.
PreparedCall prepare_naive_call(const Attention& attention, const Cublas& cublas);

}  // namespace cuflash::bench
