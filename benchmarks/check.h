// SPDX-License-Identifier: MIT
// Results against the host kernel, which accumulates in fp64.
#pragma once

#include <string>

#include "attention.h"

namespace cuflash::bench {

struct CheckResult {
  double max_error = 0;       // largest |x - reference| over the outputs compared
  double relative_error = 0;  // largest ||x - reference|| / ||reference|| over the outputs
  std::string scope;          // "all", or the part that was compared because the host would need too long
};

// Compares the outputs of the last call with the host kernel run in fp32 on the same inputs: o and lse, or dq, dk and
// dv (from the o and lse that the attention holds). Throws Failure if an output holds a value that is not finite where
// the reference is, or if the relative error is above what the dtype explains. A host call does about max_flops at
// most.
CheckResult check_outputs(const Attention& attention, double max_flops = 4e9);

// The part of a case that is compared: rows and keys from a given one to the last, since with bottom-right alignment
// the last rows (with all keys) and the last keys (with all rows and their lse) are attention problems of their own.
struct Region {
  int32_t batch_begin, batch;
  int32_t head_k_begin, heads_k;
  int32_t row_begin, key_begin;
};

// The region as a case, for its work.
Case region_case(const Case& c, const Region& region);

enum class Cut { kRows, kKeys };

// All of the case if the host's work is within max_flops; else one key head of the last batch entry, and of that as
// many of the last rows (or keys) as fit, at least one.
Region choose_region(const Case& c, Cut cut, double max_flops);

}  // namespace cuflash::bench
