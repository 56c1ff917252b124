// SPDX-License-Identifier: MIT
// One test case: everything that decides what is called with which data. It prints itself as one line and is read back
// from that line, so that any failure can be repeated from its message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dtype.h"

namespace cuflash::test {

enum class Op : int32_t { kForward = 0, kBackward = 1 };
enum class Mask : int32_t { kNone = 0, kCausal = 1, kWindow = 2 };
enum class Align : int32_t { kBottomRight = 0, kTopLeft = 1 };
enum class Alibi { kNone, kPerHead, kPerEntry };

enum class Layout {
  kBshd,
  kBhsd,
  kPacked,     // q, k, v (and the gradients) are slices of one tensor; k and v alone if q has another number of rows
  kPadded,     // gaps after every head, row and entry
  kBroadcast,  // k and v have head stride 0 and, if not packed by cu_seqlens, batch stride 0
  kUnaligned   // the base is one element past a 16-byte boundary, and heads are one element further apart
};

enum class Distribution {
  kNormal,         // N(0, 1)
  kLarge,          // scores near 1e4 or -1e4, exact in fp32, that differ by a few units: every key counts
  kHuge,           // scores to 1e4 in magnitude, exact in fp32 but for the scale, and far apart
  kLowLse,         // all scores far below -88.7, where exp underflows in fp32
  kOneHuge,        // key 1 of each head dominates all others
  kLastHuge,       // the last key of each entry does
  kHugeRow,        // some rows have a score of 1e9 / scale for one key late in the entry; the others are ordinary
  kRising,         // each key's score is about 3 above that of the key before: the running maximum never rests
  kFalling,        // 3 below: the first keys alone count
  kStepDown,       // scores near -200 for the first half of the keys, near -600 for the second: never positive
  kAlternating,    // scores near -200 for 32 keys, near +200 for the next 32, and so on
  kTies,           // every third score is 200, the others -200: the maximum is reached many times
  kEqual,          // all keys equal: all weights equal
  kEqualHuge,      // all scores equal and 1e4
  kBalanced,       // scores of standard deviation 1 whatever the scale: tiny inputs with a huge scale, or the reverse
  kDenormal,       // q and v subnormal in the dtype
  kZero,           // q = 0
  kPositive,       // uniform in [0, 1): every product has the same sign
  kThousand,       // all inputs times 1000
  kBigValues,      // v near 1e30 (fp16: 1e3)
  kSmallValues,    // v near 1e-30 (fp16: 2^-12)
  kTinyGradients,  // dout subnormal in the dtype
  kCancelling      // v near +256 and -256 in turn
};

struct Case {
  Op op = Op::kForward;
  DType dtype = DType::kFp32;
  int32_t batch = 1;
  int32_t heads = 1;
  int32_t heads_k = 1;
  int32_t seqlen_q = 1;
  int32_t seqlen_k = 1;
  int32_t head_dim = 1;
  int32_t head_dim_v = 0;  // 0: head_dim
  Mask mask = Mask::kNone;
  Align align = Align::kBottomRight;
  int32_t window_left = 0;
  int32_t window_right = 0;
  float scale = 0.0f;
  float softcap = 0.0f;
  Alibi alibi = Alibi::kNone;
  bool packed_q = false;           // cu_seqlens_q
  bool packed_k = false;           // cu_seqlens_k
  bool used_q = false;             // seqused_q
  bool used_k = false;             // seqused_k
  std::vector<int32_t> lengths_q;  // of the packed sequences; empty: drawn with geometry_seed
  std::vector<int32_t> lengths_k;
  Layout layout = Layout::kBshd;
  bool lse = true;  // forward: softmax_lse is given
  bool dlse = false;
  bool deterministic = false;
  Distribution distribution = Distribution::kNormal;
  uint32_t geometry_seed = 1;  // lengths, used lengths, spare rows, poison
  uint32_t data_seed = 1;      // values of the tensors

  int32_t value_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }

  bool operator==(const Case&) const = default;
};

// "op=fwd dtype=bf16 b=2 ...": fields that have their default value are left out, but for shape and type.
std::string to_string(const Case& c);

// False with a reason if the line is not of that form.
bool parse_case(std::string_view line, Case* c, std::string* error);

// For test tables: a line that must be right.
Case case_of(std::string_view line);

}  // namespace cuflash::test
