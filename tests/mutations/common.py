# SPDX-License-Identifier: MIT
"""Faults in the rules that all rooms share. They are noticed without a GPU: by the host room, which is made of the same
rules, or by the test of the rule where only GPU rooms use it. scripts/mutation_faults.py says what the fields mean.

Besides, what the lists of several rooms have in common: they import it from here.
"""


def conformance(device, grid="*"):
    """The tests that run every case with every kernel of a device (host or gpu), quickest first. `grid` selects those
    of the grid, which are named by dtype: only dtypes that are recompiled are needed."""
    return [
        (f"test_{device}_small", "*", 0),
        (f"test_{device}_features", "*", 0),
        (f"test_{device}_known_faults", "*", 0),
        (f"test_{device}_containment", "*", 0),
        (f"test_{device}_numerics", "*", 0),
        (f"test_{device}_grid", grid, 0),
        (f"test_{device}_features", "*", 1),
        (f"test_{device}_grid", grid, 1),
    ]


# For kernels whose warps share memory that is copied asynchronously: what the timing hides, racecheck sees.
RACE = [("test_gpu_small", "*", 0), ("test_gpu_small", "*", 0, "racecheck")]
HUGE_STRIDES = [("test_gpu_big", "BigTest.StridesBeyond32Bits", 1)]


def delta_faults(units):
    """Faults in the kernel that each backward pass on a GPU begins with, as the room with these units uses it."""
    return [
        {
            "name": "dlse_ignored",
            "what": "The gradient of lse does not enter.",
            "file": "src/kernels/common/bwd_delta.cuh",
            "old": "args.dlse == nullptr ? sum : sum - args.dlse[first + row]",
            "new": "sum",
            "units": units,
        },
        {
            "name": "delta_of_one_lane",
            "what": "delta is the sum of one lane, not of all that share the row.",
            "file": "src/kernels/common/bwd_delta.cuh",
            "old": "const float sum = group_sum(sums[i], groups);",
            "new": "const float sum = sums[i];",
            "units": units,
        },
    ]


def dq_sums_faults(units):
    """The same for rooms that sum dq in the workspace."""
    return [
        {
            "name": "dq_sums_do_not_start_at_0",
            "what": "The workspace that dq is summed in is not cleared to its end.",
            "file": "src/kernels/common/bwd_delta.cuh",
            "old": "i < count;",
            "new": "i < count - kSize;",
            "units": units,
        },
        {
            "name": "dq_without_scale",
            "what": "dq is not multiplied by the scale.",
            "file": "src/kernels/common/bwd_finish_dq.cuh",
            "old": "from_float<T>(from[i].at[e] * scale)",
            "new": "from_float<T>(from[i].at[e])",
            "units": units,
        },
    ]


UNITS = ["kernels/host/fwd.cpp", "kernels/host/bwd.cpp"]
FORWARD = ["kernels/host/fwd.cpp"]
BACKWARD = ["kernels/host/bwd.cpp"]
TESTS = conformance("host")


def only(program):
    """The test of a rule is compiled with the fault, and is all that runs."""
    source = program.removeprefix("test_host_")
    return {"units": [f"tests/host/{source}_test.cpp"], "tests": [(program, "*", 0)]}


FAULTS = [
    # ---- mask.h
    {
        "name": "window_end_exclusive",
        "what": "The last key of a row's window is left out.",
        "file": "src/kernels/common/mask.h",
        "old": "clamp_range(diagonal - a.window_left, diagonal + a.window_right + 1, s.k.length)",
        "new": "clamp_range(diagonal - a.window_left, diagonal + a.window_right, s.k.length)",
    },
    {
        "name": "window_begin_late",
        "what": "The first key of a row's window is left out.",
        "file": "src/kernels/common/mask.h",
        "old": "clamp_range(diagonal - a.window_left, diagonal + a.window_right + 1, s.k.length)",
        "new": "clamp_range(diagonal - a.window_left + 1, diagonal + a.window_right + 1, s.k.length)",
    },
    {
        "name": "rows_see_one_key_less",
        "what": "The keys of a block of rows are those of all rows but the last.",
        "file": "src/kernels/common/mask.h",
        "old": "row_end - 1 + s.offset + a.window_right + 1",
        "new": "row_end - 2 + s.offset + a.window_right + 1",
        "units": FORWARD,
    },
    {
        "name": "keys_seen_by_one_row_less",
        "what": "The rows that see a block of keys begin one row late.",
        "file": "src/kernels/common/mask.h",
        "old": "clamp_range(key_begin - s.offset - a.window_right,",
        "new": "clamp_range(key_begin - s.offset - a.window_right + 1,",
        "units": BACKWARD,
    },
    {
        "name": "rows_of_a_key_end_early",
        "what": "The last row that sees a key is left out.",
        "file": "src/kernels/common/mask.h",
        "old": "clamp_range(diagonal - a.window_right, diagonal + a.window_left + 1, s.q.length)",
        "new": "clamp_range(diagonal - a.window_right, diagonal + a.window_left, s.q.length)",
        **only("test_host_mask"),
    },
    # ---- sequence.h
    {
        "name": "diagonal_of_the_bounds",
        "what": "Bottom-right alignment takes the lengths of the call, not those of the entry.",
        "file": "src/kernels/common/sequence.h",
        "old": "a.bottom_right ? int64_t{k.length} - q.length : 0",
        "new": "a.bottom_right ? int64_t{a.seqlen_k} - a.seqlen_q : 0",
    },
    {
        "name": "alignment_ignored",
        "what": "Top-left alignment is computed as bottom-right.",
        "file": "src/kernels/common/sequence.h",
        "old": "a.bottom_right ? int64_t{k.length} - q.length : 0",
        "new": "int64_t{k.length} - q.length",
    },
    {
        "name": "packed_length_not_clamped",
        "what": "A packed entry longer than the bound of the call is used in full.",
        "file": "src/kernels/common/sequence.h",
        "old": "static_cast<int32_t>(clamp_to(end - begin, 0, seqlen))",
        "new": "static_cast<int32_t>(end - begin)",
    },
    {
        "name": "seqused_ignored",
        "what": "Rows past the used length count.",
        "file": "src/kernels/common/sequence.h",
        "old": "if (seqused != nullptr) rows.length",
        "new": "if (seqused != nullptr && entry < 0) rows.length",
    },
    {
        "name": "key_head_modulo",
        "what": "Query heads are dealt out to key heads in turn, not in groups.",
        "file": "src/kernels/common/sequence.h",
        "old": "return head / group_size(a);",
        "new": "return head % a.num_heads_k;",
    },
    {
        "name": "packed_lse_of_the_first_entry",
        "what": "The lse of every packed entry is where that of the first is.",
        "file": "src/kernels/common/sequence.h",
        "old": "return int64_t{head} * a.total_q + q.first + row;",
        "new": "return int64_t{head} * a.total_q + row;",
    },
    {
        "name": "row_offset_in_32_bits",
        "what": "Row number times stride is computed in 32 bits.",
        "file": "src/kernels/common/sequence.h",
        "old": "(rows.first + row) * tensor.row_stride",
        "new": "static_cast<int32_t>((rows.first + row) * tensor.row_stride)",
        **only("test_host_sequence"),
    },
    # ---- score.h
    {
        "name": "softcap_derivative",
        "what": "The derivative of softcap is 1 - t instead of 1 - t * t.",
        "file": "src/kernels/common/score.h",
        "old": "Real(1) - t * t",
        "new": "Real(1) - t",
        "units": BACKWARD,
    },
    {
        "name": "scale_without_sign",
        "what": "A negative scale is taken as a positive one.",
        "file": "src/kernels/common/score.h",
        "old": "product * static_cast<Real>(a.scale)",
        "new": "product * static_cast<Real>(std::abs(a.scale))",
    },
    {
        "name": "alibi_without_absolute_value",
        "what": "ALiBi rewards keys behind the diagonal.",
        "file": "src/kernels/common/score.h",
        "old": "distance < 0 ? -distance : distance",
        "new": "distance",
    },
    {
        "name": "alibi_of_the_first_entry",
        "what": "All batch entries use the slopes of the first.",
        "file": "src/kernels/common/score.h",
        "old": "a.alibi_slopes[entry * a.alibi_batch_stride + head]",
        "new": "a.alibi_slopes[head]",
    },
    {
        "name": "empty_rows_have_weight",
        "what": "A row with lse = -inf is not left out of the gradients.",
        "file": "src/kernels/common/score.h",
        "old": "  if (lse == kNegativeInfinity<Real>) return {Real(0), Real(0)};\n",
        "new": "",
        "units": BACKWARD,
    },
    # ---- online_softmax.h
    {
        "name": "shift_of_an_empty_row",
        "what": "A row that saw only scores of -inf subtracts -inf from -inf.",
        "file": "src/kernels/common/online_softmax.h",
        "old": "return row_max == kNegativeInfinity<Real> ? Real(0) : row_max;",
        "new": "return row_max;",
        "units": FORWARD,
    },
    {
        "name": "sum_not_rescaled",
        "what": "The sum of the weights stays relative to the old maximum.",
        "file": "src/kernels/common/online_softmax.h",
        "old": "    row_sum *= rescale;\n",
        "new": "",
        "units": FORWARD,
    },
    {
        "name": "empty_row_divided_by_zero",
        "what": "The output of a row that sees no key is 0 / 0.",
        "file": "src/kernels/common/online_softmax.h",
        "old": "return row_sum == Real(0) ? Real(0) : Real(1) / row_sum;",
        "new": "return Real(1) / row_sum;",
        "units": FORWARD,
    },
    {
        "name": "lse_without_maximum",
        "what": "lse is the logarithm of the sum alone.",
        "file": "src/kernels/common/online_softmax.h",
        "old": "row_max + log(row_sum)",
        "new": "log(row_sum)",
        "units": FORWARD,
    },
    {
        "name": "maximum_loses_nan",
        "what": "A NaN that came first is replaced by a number that follows.",
        "file": "src/kernels/common/online_softmax.h",
        "old": "(a > b || a != a) ? a : b",
        "new": "a > b ? a : b",
        **only("test_host_online_softmax"),
    },
    # ---- tile_coord.h
    {
        "name": "last_block_lost",
        "what": "The number of blocks is rounded down.",
        "file": "src/kernels/common/tile_coord.h",
        "old": "return value / divisor + (value % divisor != 0);",
        "new": "return value / divisor;",
    },
    {
        "name": "tile_count_in_32_bits",
        "what": "Batch times heads is computed in 32 bits.",
        "file": "src/kernels/common/tile_coord.h",
        "old": "return int64_t{batch} * num_heads * blocks_per_head;",
        "new": "return int64_t{static_cast<int32_t>(int64_t{batch} * num_heads)} * blocks_per_head;",
        **only("test_host_layout"),
    },
    {
        "name": "block_begin_in_32_bits",
        "what": "The first row of a block is computed in 32 bits.",
        "file": "src/kernels/common/tile_coord.h",
        "old": "const int64_t begin = int64_t{block} * rows_per_block;",
        "new": "const int64_t begin = static_cast<int32_t>(int64_t{block} * rows_per_block);",
        **only("test_host_tile_coord"),
    },
    {
        "name": "blocks_of_other_heads",
        "what": "The block of a tile is found as if the blocks of all heads took turns.",
        "file": "src/kernels/common/tile_coord.h",
        "old": "block_of_head(head.whole, num_heads, head.rest)",
        "new": "block_of_head(head.whole, num_heads, tile / num_heads % blocks_per_head)",
        **only("test_host_layout"),
    },
    {
        "name": "quotients_in_32_bits",
        "what": "Tiles beyond 2^32 are divided as if they were below.",
        "file": "src/kernels/common/tile_coord.h",
        "old": "if (((a | b) >> 32) != 0) return {a / b, a % b};",
        "new": "",
        **only("test_host_tile_coord"),
    },
    {
        "name": "last_group_as_large_as_others",
        "what": "The last heads of a grid are taken for a full group.",
        "file": "src/kernels/common/tile_coord.h",
        "old": "left < group_heads ? left : group_heads",
        "new": "group_heads",
        **only("test_host_layout"),
    },
]
