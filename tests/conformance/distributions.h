// SPDX-License-Identifier: MIT
// The table of distributions: data and masks at the edges of the number formats, one row each.
#pragma once

#include <string>
#include <vector>

#include "support/case.h"

namespace cuflash::test {

// Where the allowed error reaches the values themselves the comparison says nothing. Few rows of a result may be so,
// but for gradients that vanish by their definition.
struct Vanishing {
  const char* tensors = "";     // of "o lse dq dk dv"
  bool even_with_dlse = false;  // if not, dlse keeps the gradient from vanishing
  const char* reason = "";
};

struct NamedDistribution {
  const char* name;
  const char*
      fields;  // of a Case; with sq in it, it is the only shape, else it is run with each of kDistributionShapes
  const char* dtypes = "fp32 fp16 bf16";
  Vanishing vanishing = {};
};

inline constexpr const char* kDistributionShapes[] = {
    "b=2 h=2 hk=1 sq=65 sk=130 d=64",
    "b=2 h=2 hk=2 sq=129 sk=129 d=40 mask=causal dlse=1",
    "b=2 h=2 hk=2 sq=1 sk=97 d=128 mask=window wl=30 wr=0",
    "b=1 h=2 hk=1 sq=33 sk=70 d=256"};

inline constexpr const char* kWide = "fp32 bf16";  // dtypes with the range of fp32

inline constexpr Vanishing kOneWeight = {"dq dk", true, "weights are 0 and 1 and do not move"};
inline constexpr Vanishing kFarKeys = {"dk dv", true, "weights of far keys are below the smallest number of fp16"};
inline constexpr Vanishing kFlatCap = {"dq dk", true, "softcap is flat there"};
inline constexpr Vanishing kHugeKeys = {
    "dq dk", true, "the large elements of q and k meet sums of ds, which are near 0"};
inline constexpr Vanishing kUnits = {"o dq dk dv", true, "scores of 1e6 are known to units only"};

// clang-format off
inline const NamedDistribution kDistributions[] = {
    // Sizes of scores
    {"normal", "dist=normal"},
    {"positive", "dist=positive"},
    {"scores of 0", "dist=zero"},
    {"scores of +-1e4, a few units apart", "dist=large", "fp32 fp16 bf16",
     {"dq", false, "the large element of k meets a sum of ds, which is 0"}},
    {"scores to +-1e4, far apart", "dist=huge", "fp32 fp16 bf16", kOneWeight},
    {"scores of -200: LSE below -88.7", "dist=low_lse"},
    {"scores of +200: LSE above 88.7", "dist=low_lse scale=-0.125"},
    {"scores of -200 in 64 rows", "sq=64 sk=64 d=64 h=2 hk=2 dist=low_lse"},
    {"scores of -200 in 192 rows", "sq=192 sk=192 d=64 h=2 hk=1 dist=low_lse mask=causal"},
    {"scores of -200 in 320 rows", "sq=320 sk=100 d=128 h=2 hk=2 dist=low_lse dlse=1"},
    {"scores of -30 to -1500 by ALiBi alone", "h=8 hk=8 sq=9 sk=3000 d=32 alibi=head", "fp32 fp16 bf16", kFarKeys},

    // Where the largest scores stand
    {"one huge score, in the first block", "dist=one_huge"},
    {"one huge score, in the last block", "dist=last_huge"},
    {"a score of 1e9 in some rows, before scale", "h=2 hk=1 sq=65 sk=130 d=256 dist=huge_row", kWide},
    {"scores rise from key to key", "dist=rising", "fp32 fp16 bf16", kFarKeys},
    {"scores fall from key to key", "dist=falling", "fp32 fp16 bf16", kFarKeys},
    {"scores of -200, then of -600", "h=2 hk=2 sq=64 sk=512 d=64 dist=step_down"},
    {"blocks of -200 and +200 in turn", "dist=alternating"},
    {"the maximum many times", "dist=ties"},
    {"all scores equal", "dist=equal", "fp32 fp16 bf16", {"dq", false, "dq is a sum of ds, which is 0, times one k"}},
    {"all scores equal and 1e4", "dist=equal_huge", "fp32 fp16 bf16", kHugeKeys},
    {"all scores equal and -1e4", "dist=equal_huge scale=-0.125", "fp32 fp16 bf16", kHugeKeys},

    // Scales
    {"negative scale", "dist=normal scale=-0.2"},
    {"negative scale, scores to 1e4", "dist=huge scale=-0.125", "fp32 fp16 bf16", kOneWeight},
    {"scale of 1e-30: all scores near 0", "dist=normal scale=1e-30"},
    {"tiny inputs, scale of 1e30", "dist=balanced scale=1e30", kWide},
    {"tiny inputs, scale of -1e30", "dist=balanced scale=-1e30", kWide},
    {"tiny inputs, scale near the largest number", "dist=balanced scale=3e38", kWide},
    {"tiny inputs, scale of 1e6", "dist=balanced scale=1e6"},
    {"large inputs, scale of 1e-20", "dist=balanced scale=1e-20", kWide},
    {"large inputs, scale of 1e-35", "dist=balanced scale=1e-35", kWide},

    // Softcap
    {"softcap of 30, scores to 1e4", "dist=huge softcap=30", "fp32 fp16 bf16", kFlatCap},
    {"softcap of 1000, scores to 1e4", "dist=huge softcap=1000", "fp32 fp16 bf16",
     {"dk", false, "softcap is flat for most scores"}},
    {"softcap of 50, scores of +-1e4", "dist=large softcap=50"},
    {"softcap of 20, scores of -200", "dist=low_lse softcap=20", "fp32 fp16 bf16", kFlatCap},
    {"softcap of 0.001", "dist=normal softcap=0.001", "fp32 fp16 bf16", kFlatCap},
    {"softcap far above the scores", "dist=normal softcap=1e30"},

    // Sizes of inputs
    {"inputs times 1000", "dist=thousand", kWide, kUnits},
    {"inputs times 1000, scores near 1", "dist=thousand scale=1.25e-7", kWide},
    {"subnormal inputs", "dist=denormal", "fp32 fp16 bf16", {"dq dk", true, "a few of the smallest numbers"}},
    {"large values", "dist=big_values"},
    {"small values", "dist=small_values"},
    {"values that cancel", "dist=cancelling"},
    {"subnormal gradients", "dist=tiny_gradients", "fp32 fp16 bf16",
     {"dq dk dv", true, "a few of the smallest numbers"}},

    // Rows and blocks without keys
    {"one key for each row", "h=2 hk=2 sq=130 sk=130 d=64 mask=window wl=0 wr=0"},
    {"one key in all", "h=2 hk=1 sq=65 sk=1 d=40"},
    {"one row, one key", "b=3 h=2 hk=1 sq=1 sk=1 d=64"},
    {"the first rows see no key", "h=2 hk=2 sq=200 sk=70 d=32 mask=causal"},
    {"the last rows see no key", "h=2 hk=1 sq=300 sk=50 d=32 mask=window wl=8 wr=0 align=top_left"},
    {"all rows but one see no key", "h=2 hk=2 sq=130 sk=1 d=64 mask=causal"},
    {"no row sees the first blocks", "h=2 hk=2 sq=40 sk=300 d=64 mask=window wl=20 wr=-1"},
    {"no row sees the last blocks", "h=2 hk=2 sq=40 sk=300 d=64 mask=window wl=-1 wr=5 align=top_left"},
    {"all blocks but the last are masked", "h=2 hk=2 sq=3 sk=500 d=64 mask=window wl=4 wr=0"},
    {"all blocks but the first are masked", "h=2 hk=2 sq=3 sk=500 d=64 mask=window wl=0 wr=4 align=top_left"},
    {"a band, its edges inside of tiles", "h=2 hk=2 sq=200 sk=200 d=64 mask=window wl=40 wr=23 dist=low_lse"},
    {"entries without keys", "b=6 h=2 hk=2 sq=65 sk=64 d=40 mask=causal used_q=1 used_k=1 geo=4"},
    {"no row sees a key, scores of -200 elsewhere", "b=6 h=2 hk=2 sq=65 sk=64 d=40 used_k=1 dist=low_lse geo=3"}};
// clang-format on

// The cases of a row in all its dtypes and both directions.
inline std::vector<Case> cases_of(const NamedDistribution& row) {
  const std::string fields = row.fields;
  std::vector<std::string> lines;
  if (fields.find("sq=") != std::string::npos) {
    lines = {fields};
  } else {
    for (const std::string shape : kDistributionShapes) lines.push_back(shape + " " + fields);
  }
  std::vector<Case> cases;
  for (const std::string op : {"fwd", "bwd"}) {
    for (const std::string dtype : {"fp32", "fp16", "bf16"}) {
      if (std::string(row.dtypes).find(dtype) == std::string::npos) continue;
      for (const std::string& line : lines) cases.push_back(case_of("op=" + op + " dtype=" + dtype + " " + line));
    }
  }
  return cases;
}

}  // namespace cuflash::test
