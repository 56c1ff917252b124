// SPDX-License-Identifier: MIT
// The command line of cuflash_bench.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cases.h"

namespace cuflash::bench {

// A command line that makes no sense; what() is one sentence for the user.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Mask {
  cuflashMask_t mask = CUFLASH_MASK_NONE;
  int32_t window_left = 0;
  int32_t window_right = 0;

  friend bool operator==(const Mask&, const Mask&) = default;
};

struct Shape {
  int32_t batch, num_heads, num_heads_k, seqlen_q, seqlen_k, head_dim, head_dim_v;

  friend bool operator==(const Shape&, const Shape&) = default;
};

struct Options {
  enum class Mode { kRun, kHelp, kList, kDryRun, kCaps };

  Mode mode = Mode::kRun;

  // What to measure. An empty list means that the user did not say: the case set decides.
  std::vector<std::string> kernels;
  std::vector<cuflashOperation_t> operations;
  std::vector<cuflashDataType_t> dtypes;
  std::vector<int32_t> head_dims;
  std::vector<int32_t> seqlens;
  std::vector<Mask> masks;
  std::vector<Shape> shapes;
  std::vector<Temperature> temperatures;
  std::optional<bool> overhead;  // set if --op was given: whether it named overhead
  bool quick = false;

  // How to measure it.
  bool check = false;
  int samples = 20;
  double max_seconds = 0;  // filled in by parse_options(): by default less for the quick set
  std::string cublas;      // path of the cuBLAS library; empty: the loader's search

  // What to write.
  std::string out;
  std::string commit;
  std::vector<std::string> google_benchmark;  // --benchmark_... options, passed on
};

// args without the program's name. Throws UsageError.
Options parse_options(std::span<const char* const> args);

extern const char* const kUsage;

}  // namespace cuflash::bench
