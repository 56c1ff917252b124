# SPDX-License-Identifier: MIT
"""Faults in the host room. scripts/mutation_faults.py says what the fields mean."""
from common import conformance

FORWARD = ["kernels/host/fwd.cpp"]
BACKWARD = ["kernels/host/bwd.cpp"]
UNITS = FORWARD + BACKWARD
TESTS = conformance("host")

FAULTS = [
    # ---- Forward
    {
        "name": "row_mask_ignored",
        "what": "A row uses all keys that some row of its tile sees.",
        "file": "src/kernels/host/fwd.cpp",
        "old": "const Range visible = intersection(visible_keys(a_, s_, row), keys);",
        "new": "const Range visible = keys;",
        "units": FORWARD,
    },
    {
        "name": "maximum_not_carried",
        "what": "The running maximum is forgotten at each block of keys.",
        "file": "src/kernels/host/fwd.cpp",
        "old": "    const double rescale = state.raise(block_max);\n",
        "new": "    state.row_max = kNegativeInfinity<double>;\n    const double rescale = state.raise(block_max);\n",
        "units": FORWARD,
    },
    {
        "name": "output_not_rescaled",
        "what": "What was summed up stays relative to the old maximum.",
        "file": "src/kernels/host/fwd.cpp",
        "old": "out_[r][d] *= rescale;",
        "new": "out_[r][d] *= rescale == 0.0 ? 0.0 : 1.0;",
        "units": FORWARD,
    },
    {
        "name": "sum_of_the_last_key",
        "what": "The sum of the weights holds the last one only.",
        "file": "src/kernels/host/fwd.cpp",
        "old": "state.row_sum += weight;",
        "new": "state.row_sum = weight;",
        "units": FORWARD,
    },
    {
        "name": "wrong_key_head",
        "what": "Query heads are dealt out to key heads in turn, not in groups.",
        "file": "src/kernels/host/fwd.cpp",
        "old": "const int32_t head_k = key_head(a_, tile_.head);",
        "new": "const int32_t head_k = tile_.head % a_.num_heads_k;",
        "units": FORWARD,
    },
    {
        "name": "lse_in_base_2",
        "what": "lse is a logarithm to base 2.",
        "file": "src/kernels/host/fwd.cpp",
        "old": "static_cast<float>(states_[r].lse())",
        "new": "static_cast<float>(states_[r].lse() * 1.4426950408889634)",
        "units": FORWARD,
    },
    # ---- Backward
    {
        "name": "dlse_ignored",
        "what": "The gradient of lse does not enter.",
        "file": "src/kernels/host/bwd.cpp",
        "old": "const double dlse = args.dlse == nullptr ? 0.0 : args.dlse[at];",
        "new": "const double dlse = 0.0;",
        "units": BACKWARD,
    },
    {
        "name": "delta_over_head_dim",
        "what": "delta sums over head_dim elements of o, not over head_dim_v.",
        "file": "src/kernels/host/bwd.cpp",
        "old": "dlse - dot(dout, out, a.head_dim_v)",
        "new": "dlse - dot(dout, out, a.head_dim)",
        "units": BACKWARD,
    },
    {
        "name": "delta_left_out",
        "what": "ds is p * dp, without delta.",
        "file": "src/kernels/host/bwd.cpp",
        "old": "dp[j] + query.shift",
        "new": "dp[j]",
        "units": BACKWARD,
    },
    {
        "name": "dq_without_scale",
        "what": "dq is not multiplied by the scale.",
        "file": "src/kernels/host/bwd.cpp",
        "old": "store_row(dq_[row - rows.begin], a_.scale, dq, a_.head_dim);",
        "new": "store_row(dq_[row - rows.begin], 1.0, dq, a_.head_dim);",
        "units": BACKWARD,
    },
    {
        "name": "dv_with_scale",
        "what": "dv is multiplied by the scale.",
        "file": "src/kernels/host/bwd.cpp",
        "old": "store_row(dv_[j], 1.0,",
        "new": "store_row(dv_[j], a_.scale,",
        "units": BACKWARD,
    },
    {
        "name": "first_query_head_only",
        "what": "dk and dv sum over the first query head of a group.",
        "file": "src/kernels/host/bwd.cpp",
        "old": "for (int32_t g = 0; g < group; ++g)",
        "new": "for (int32_t g = 0; g < std::min(group, 1); ++g)",
        "units": BACKWARD,
    },
    {
        "name": "rows_of_the_last_key_lost",
        "what": "Rows that see only the last key of a tile do not reach it.",
        "file": "src/kernels/host/bwd.cpp",
        "old": "visible_rows_of_keys(a_, s_, tile_.rows.begin, tile_.rows.end)",
        "new": "visible_rows_of_keys(a_, s_, tile_.rows.begin, tile_.rows.end - 1)",
        "units": BACKWARD,
    },
    # ---- Both
    {
        "name": "stale_row",
        "what": "The last row of a tile starts from what the tile before it left there.",
        "file": "src/kernels/host/block.h",
        "old": "std::fill_n(values_, kRows * dim_, 0.0);",
        "new": "std::fill_n(values_, (kRows - 1) * dim_, 0.0);",
        "units": BACKWARD,
    },
    {
        "name": "stale_column",
        "what": "The last column of a block of keys is not loaded.",
        "file": "src/kernels/host/block.h",
        "old": "for (int32_t d = 0; d < dim_; ++d) values_[d][key] = to_double(from[d]);",
        "new": "for (int32_t d = 0; d < dim_ - 1; ++d) values_[d][key] = to_double(from[d]);",
    },
    {
        "name": "tail_skipped",
        "what": "Keys after the last full block are left out.",
        "file": "src/kernels/host/block.h",
        "old": "begin < range.end;) {",
        "new": "begin < range.end && (begin == range.begin || begin + size <= range.end);) {",
    },
    {
        "name": "last_row_of_a_tile",
        "what": "A full tile ends one row early.",
        "file": "src/kernels/host/workers.h",
        "old": "clamp_range(begin, begin + tile_rows_, length)",
        "new": "clamp_range(begin, begin + tile_rows_ - 1, length)",
    },
    {
        "name": "rounded_twice",
        "what": "fp16 results are rounded to fp32 first.",
        "file": "src/kernels/host/convert.h",
        "old": "__float2half_rn(round_to_odd(x))",
        "new": "__float2half_rn(static_cast<float>(x))",
        "units": ["tests/host/convert_test.cpp"],
        "tests": [("test_host_convert", "*", 0)],
    },
]
