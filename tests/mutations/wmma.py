# SPDX-License-Identifier: MIT
"""Faults in the wmma room, and of shared rules as its kernels use them. One dtype and the capacity 32 are recompiled,
which compiles fastest and most tests take, or the one that has what a fault is about. scripts/mutation_faults.py says
what the fields mean.
"""
from common import HUGE_STRIDES, RACE, conformance

FORWARD = ["kernels/wmma/fwd___half_32.cu"]
BACKWARD = ["kernels/wmma/bwd___half_32.cu"]
UNITS = FORWARD + BACKWARD
TESTS = conformance("gpu", grid="*Fp16")

FAULTS = [
    # ---- Fragments
    {
        "name": "rows_for_columns",
        "what": "The row of an element is taken for its column and the other way round.",
        "file": "src/kernels/wmma/fragment.cuh",
        "old": "static_cast<float>(i);",
        "new": "static_cast<float>(i % kSide * kSide + i / kSide);",
        "units": FORWARD,
    },
    {
        "name": "bf16_matrix_not_transposed",
        "what": "A bf16 operand whose depth runs down the columns is loaded as if it ran along the rows.",
        "file": "src/kernels/wmma/ptx.cuh",
        "old": "wmma.load.b.sync.aligned.row.m16n16k16.shared.bf16",
        "new": "wmma.load.b.sync.aligned.col.m16n16k16.shared.bf16",
        "units": ["kernels/wmma/fwd___nv_bfloat16_32.cu"],
        "tests": conformance("gpu", grid="*Bf16"),
    },
    # ---- Copies
    {
        "name": "rows_past_the_end",
        "what": "Rows past the last one in use are read, not taken as 0.",
        "file": "src/kernels/wmma/load.cuh",
        "old": "count - row(), head_dim - dim()};",
        "new": "count - row() + 1, head_dim - dim()};",
        "units": FORWARD,
        "tests": [
            ("test_gpu_small", "*", 0),
            ("test_gpu_features", "*", 0),
            ("test_gpu_containment", "*", 0),
            ("test_gpu_small", "*", 0, "memcheck"),
        ],
    },
    {
        "name": "stale_column",
        "what": "The last column of each result is not written.",
        "file": "src/kernels/wmma/load.cuh",
        "old": "if (dim + e < head_dim) to[e]",
        "new": "if (dim + e < head_dim - 1) to[e]",
        "units": FORWARD,
    },
    {
        "name": "row_offset_in_32_bits",
        "what": "Row number times stride is computed in 32 bits inside of a tile.",
        "file": "src/kernels/wmma/load.cuh",
        "old": "{rows + row() * row_stride + dim(),",
        "new": "{rows + static_cast<int32_t>(row() * row_stride) + dim(),",
        "units": FORWARD,
        "tests": HUGE_STRIDES,
    },
    # ---- Forward
    {
        "name": "wrong_key_head",
        "what": "Query heads are dealt out to key heads in turn, not in groups.",
        "file": "src/kernels/wmma/fwd.cuh",
        "old": "const int32_t head_k = key_head(a, at.head);",
        "new": "const int32_t head_k = at.head % a.num_heads_k;",
        "units": FORWARD,
    },
    {
        "name": "output_not_rescaled",
        "what": "Sums of values stay relative to the old maximum when it moves.",
        "file": "src/kernels/wmma/softmax.cuh",
        "old": "      for (int j = 0; j < kDims; ++j) o[j].x[e] *= rescale;\n",
        "new": "      for (int j = 0; j < kDims; ++j) o[j].x[e] *= rescale == 0.0f ? 0.0f : 1.0f;\n",
        "units": ["kernels/wmma/fwd___half_64.cu"],
        "tests": [("test_gpu_numerics", "*", 0), ("test_gpu_known_faults", "*", 0)],
    },
    {
        "name": "maximum_of_one_fragment",
        "what": "The maximum of a step is that of its first 16 keys.",
        "file": "src/kernels/wmma/softmax.cuh",
        "old": "for (int j = 1; j < kCols; ++j) value",
        "new": "for (int j = 1; j < 1; ++j) value",
        "units": FORWARD,
    },
    {
        "name": "mask_left_out_too_early",
        "what": "A step of which the first row of a warp does not see the last key counts as seen by all.",
        "file": "src/kernels/wmma/fwd.cuh",
        "old": "first + kStep > seen.all.end",
        "new": "first + kStep > seen.all.end + 1",
        "units": FORWARD,
    },
    {
        "name": "hidden_nan_reaches_o",
        "what": "Rows of o that a hidden NaN made NaN stay so.",
        "file": "src/kernels/wmma/fwd.cuh",
        "old": "for_each_bit(not_finite & ~nan_rows,",
        "new": "for_each_bit(0,",
        "units": FORWARD,
    },
    {
        "name": "no_barrier_before_keys",
        "what": "Warps multiply before the others have copied their part of the keys and values.",
        "file": "src/kernels/wmma/fwd.cuh",
        "old": "      v += kTile.block_n * args.v.row_stride;\n      __syncthreads();\n",
        "new": "      v += kTile.block_n * args.v.row_stride;\n",
        "units": FORWARD,
        "tests": RACE,
    },
    # ---- Backward
    {
        "name": "dq_of_half_the_rows",
        "what": "Of each fragment of dq the first eight rows are summed.",
        "file": "src/kernels/wmma/bwd_tile.cuh",
        "old": "row < kSide; row += 8",
        "new": "row < 8; row += 8",
        "units": BACKWARD,
    },
    {
        "name": "deterministic_dq_ends_early",
        "what": "The deterministic dq leaves out the last key of each block of rows.",
        "file": "src/kernels/wmma/bwd_tile.cuh",
        "old": ": visible_keys_of_rows(a, s, own.begin, own.end);",
        "new": ": visible_keys_of_rows(a, s, own.begin, own.end - 1);",
        "units": BACKWARD,
    },
    {
        "name": "empty_rows_count",
        "what": "Rows that saw no key, and have lse = -inf, get weights like others.",
        "file": "src/kernels/wmma/bwd_tile.cuh",
        "old": "first_row + row < own_count &&\n                 !statistics_of(row, col).saw_nothing();",
        "new": "first_row + row < own_count;",
        "units": BACKWARD,
    },
    {
        "name": "no_barrier_before_weights_are_read",
        "what": "Warps multiply with p and ds before the others have stored their part.",
        "file": "src/kernels/wmma/bwd_tile.cuh",
        "old": "ds, map);\n      }\n      __syncthreads();\n",
        "new": "ds, map);\n      }\n",
        "units": BACKWARD,
        "tests": RACE,
    },
    # ---- Shared rules
    {
        "name": "rows_of_a_key_end_early",
        "what": "The last row that sees a key is left out of its gradients.",
        "file": "src/kernels/common/mask.h",
        "old": "tile_mask(diagonal - a.window_right, diagonal + a.window_left + 1,",
        "new": "tile_mask(diagonal - a.window_right, diagonal + a.window_left,",
        "units": BACKWARD,
    },
]
