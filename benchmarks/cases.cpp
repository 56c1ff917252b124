// SPDX-License-Identifier: MIT
#include "cases.h"

namespace cuflash::bench {
namespace {

// "d" and 64: "d64"; -1 is the window's unlimited.
std::string labelled(const char* label, int32_t value) {
  std::string text = label;
  return text.append(value < 0 ? "inf" : std::to_string(value));
}

}  // namespace

std::string mask_name(const Case& c) {
  switch (c.mask) {
    case CUFLASH_MASK_NONE: return "full";
    case CUFLASH_MASK_CAUSAL: return "causal";
    default: return labelled("window_l", c.window_left) + labelled("_r", c.window_right);
  }
}

std::string shape_name(const Case& c) {
  std::string name = labelled("b", c.batch) + labelled("_h", c.num_heads);
  if (c.num_heads_k != c.num_heads) name += labelled("_hk", c.num_heads_k);
  if (c.seqlen_q == c.seqlen_k) return name + labelled("_s", c.seqlen_q);
  return name + labelled("_q", c.seqlen_q) + labelled("_k", c.seqlen_k);
}

std::string benchmark_name(const Case& c, const std::string& kernel, Temperature temperature) {
  std::string head_dim = labelled("d", c.head_dim);
  if (c.head_dim_v != c.head_dim) head_dim += labelled("_v", c.head_dim_v);
  return std::string(operation_name(c.operation)) + "/" + kernel + "/" + dtype_name(c.dtype) + "/" + head_dim + "/" +
         mask_name(c) + "/" + shape_name(c) + "/" + temperature_name(temperature);
}

}  // namespace cuflash::bench
