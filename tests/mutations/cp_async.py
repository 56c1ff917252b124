# SPDX-License-Identifier: MIT
"""Faults in the cp_async room, and of shared rules as its kernels use them. One dtype and the capacity 32 are
recompiled, which compiles fastest and most tests take, or the one that has what a fault is about.
scripts/mutation_faults.py says what the fields mean.
"""
from common import HUGE_STRIDES, RACE, conformance, dq_sums_faults


def units(operation, capacity):
    return [f"kernels/cp_async/{operation}___nv_bfloat16_{capacity}.cu"]


FORWARD = units("fwd", 32)
BACKWARD = units("bwd", 32)
UNITS = FORWARD + BACKWARD
TESTS = conformance("gpu", grid="*Bf16")
BANKS = {"units": ["tests/host/cp_async_banks_test.cpp"], "tests": [("test_host_cp_async_banks", "*", 0)]}

FAULTS = [
    # ---- Tiles in shared memory
    {
        "name": "chunks_not_exchanged",
        "what": "Rows lie in shared memory as they are: results are right, but every load of a matrix meets one bank.",
        "file": "src/kernels/cp_async/swizzle.h",
        "old": "((chunk ^ row_key(row)) * 16)",
        "new": "(chunk * 16)",
        **BANKS,
    },
    {
        "name": "matrices_in_the_wrong_order",
        "what": "Operand b is loaded in the order of operand a.",
        "file": "src/kernels/cp_async/swizzle.h",
        "old": "row + lane % 8 + lane / 16 * 8, dim + lane / 8 % 2 * kChunk",
        "new": "row + lane % 16, dim + lane / 16 * kChunk",
        "units": FORWARD,
    },
    {
        "name": "rows_past_the_end",
        "what": "Rows past the last one in use are read, not taken as 0.",
        "file": "src/kernels/cp_async/load.cuh",
        "old": "row + first < count ?",
        "new": "row + first < count + 1 ?",
        "units": FORWARD,
        "tests": [("test_gpu_small", "*", 0), ("test_gpu_features", "*", 0), ("test_gpu_small", "*", 0, "memcheck")],
    },
    {
        "name": "row_offset_in_32_bits",
        "what": "Row number times stride is computed in 32 bits inside of a tile.",
        "file": "src/kernels/cp_async/load.cuh",
        "old": "first + Chunks(threadIdx.x).row * row_stride",
        "new": "first + static_cast<int32_t>(Chunks(threadIdx.x).row * row_stride)",
        "units": FORWARD,
        "tests": HUGE_STRIDES,
    },
    {
        "name": "last_element_stale",
        "what": "The last element of each row of o that is shorter than the capacity is not written.",
        "file": "src/kernels/common/fragment_store.cuh",
        "old": "  if (used >= kElements) {",
        "new": "  if (used > kElements) {",
        "units": FORWARD,
    },
    # ---- Forward
    {
        "name": "end_of_step_unmasked",
        "what": "A step in which some rows do not see the last keys counts as one without a mask.",
        "file": "src/kernels/cp_async/fwd.cuh",
        "old": "if (first < seen.all.begin || first + kStep > seen.all.end) {",
        "new": "if (first < seen.all.begin) {",
        "units": FORWARD,
    },
    {
        "name": "no_wait_for_a_stage",
        "what": "A stage is used before its copies have arrived.",
        "file": "src/kernels/cp_async/fwd.cuh",
        "old": "      wait_copies<kStages - 2>();\n      __syncthreads();\n      copy_stage(",
        "new": "      __syncthreads();\n      copy_stage(",
        "tests": [*RACE, *TESTS],
        "units": units("fwd", 128),
    },
    {
        "name": "no_barrier_before_a_stage",
        "what": "Warps use what others have copied before it has arrived, and overwrite what others still use.",
        "file": "src/kernels/cp_async/fwd.cuh",
        "old": "      wait_copies<kStages - 2>();\n      __syncthreads();\n      copy_stage(",
        "new": "      wait_copies<kStages - 2>();\n      copy_stage(",
        "units": units("fwd", 128),
        "tests": RACE,
    },
    {
        "name": "wrong_key_head",
        "what": "Query heads are dealt out to key heads in turn, not in groups.",
        "file": "src/kernels/cp_async/fwd.cuh",
        "old": "const int32_t head_k = key_head(a, at.head);",
        "new": "const int32_t head_k = at.head % a.num_heads_k;",
        "units": FORWARD,
    },
    {
        "name": "output_not_rescaled",
        "what": "Sums stay relative to the old maximum when it moves.",
        "file": "src/kernels/common/fragment_softmax.cuh",
        "old": "rescale[i] = reference[i] == next[i] ? 1.0f : exp2_to_zero((reference[i] - next[i]) * factor);",
        "new": "rescale[i] = reference[i] == kNegativeInfinity<float> ? 0.0f : 1.0f;",
        "tests": [("test_gpu_numerics", "*", 0), ("test_gpu_known_faults", "*", 0)],
        "units": units("fwd", 64),
    },
    {
        "name": "maximum_of_one_lane",
        "what": "Each lane shifts by the maximum of its own scores.",
        "file": "src/kernels/common/fragment_softmax.cuh",
        "old": "return fmaxf(x, y);",
        "new": "return x;",
        "units": FORWARD,
    },
    {
        "name": "hidden_nan_leaks",
        "what": "Rows that hidden values made NaN are not computed again.",
        "file": "src/kernels/cp_async/fwd.cuh",
        "old": "const bool check = masks_pairs(a);",
        "new": "const bool check = false;",
        "units": FORWARD,
    },
    {
        "name": "weights_multiplied_as_scores",
        "what": "When a partner's score is huge, a warp multiplies weights by what scores have to be multiplied by.",
        "file": "src/kernels/cp_async/fwd.cuh",
        "old": "x *= softmax.rescale[i]; });\n            }\n            store_weights();",
        "new": "x *= put * softmax.rescale[i]; });\n            }\n            store_weights();",
        "units": units("fwd", 256),
        "tests": [("test_gpu_numerics", "*", 0)],
    },
    # ---- Backward
    {
        "name": "rows_in_front_count",
        "what": "With a causal mask, rows in front of a key count.",
        "file": "src/kernels/cp_async/bwd_weights.cuh",
        "old": "(8 * n + e >= begin) & (8 * n + e < end)",
        "new": "(8 * n + e < end)",
        "units": BACKWARD,
    },
    {
        "name": "first_query_head_only",
        "what": "dk and dv sum over the first query head of a group.",
        "file": "src/kernels/cp_async/bwd_steps.cuh",
        "old": "head < (block.at.head + 1) * group_size(a)",
        "new": "head < block.at.head * group_size(a) + 1",
        "units": BACKWARD,
    },
    {
        "name": "no_wait_for_rows",
        "what": "Products begin before the copy of the streamed rows has ended.",
        "file": "src/kernels/cp_async/bwd_tile.cuh",
        "old": "      wait_copies<0>();\n      __syncthreads();\n      const StepRows<T> next",
        "new": "      __syncthreads();\n      const StepRows<T> next",
        "units": BACKWARD,
        "tests": [*RACE, *TESTS],
    },
    {
        "name": "no_barrier_of_sharing_warps",
        "what": "Warps that share keys read the weights of the others before these have stored them.",
        "file": "src/kernels/cp_async/bwd_roles.cuh",
        "old": "    if constexpr (kSplit > 1) sync_warps<kRoleWarps * kWarpSize>(has_p ? kWarpsWithP : kWarpsWithDs);\n",
        "new": "",
        "units": units("bwd", 256),
        "tests": RACE,
    },
    {
        "name": "weights_taken_early",
        "what": "Warps with ds read p before their partners have stored it.",
        "file": "src/kernels/cp_async/bwd_roles.cuh",
        "old": "      sync_warps<kTile.threads()>(kGiven);\n",
        "new": "",
        "units": units("bwd", 128),
        "tests": RACE,
    },
    {
        "name": "small_weights_lost",
        "what": "p is handed on in fp16 as it is: ds of small weights has few bits, or none.",
        "file": "src/kernels/cp_async/bwd_roles.cuh",
        "old": "std::is_same_v<T, __half> ? 14 : 0;",
        "new": "0;",
        "units": ["kernels/cp_async/bwd___half_128.cu"],
        "tests": [("test_gpu_numerics", "*", 0)],
    },
    {
        "name": "dv_of_raised_weights",
        "what": "dv keeps the power of two that weights are larger by in fp16.",
        "file": "src/kernels/cp_async/bwd_roles.cuh",
        "old": "has_p ? 1.0f / static_cast<float>(1 << kRaised) : a.scale",
        "new": "has_p ? 1.0f : a.scale",
        "units": ["kernels/cp_async/bwd___half_128.cu"],
    },
    {
        "name": "slopes_of_hidden_pairs",
        "what": "Under softcap the weights of pairs that are not there are multiplied by slopes, which may be NaN.",
        "file": "src/kernels/cp_async/bwd_roles.cuh",
        "old": "          hide_pairs(slopes, shift_of, step.mask(), block.own_count(), row, column);\n",
        "new": "",
        "units": units("bwd", 128),
        "tests": [("test_gpu_containment", "*", 0)],
    },
    {
        "name": "dq_in_the_order_of_fragments",
        "what": "Sums of dq are taken for columns in order.",
        "file": "src/kernels/common/bwd_finish_dq.cuh",
        "old": "if constexpr (kOrder == SumsOrder::kColumns) return column;",
        "new": "return column;",
        "units": BACKWARD,
    },
    {
        "name": "mask_of_the_first_step",
        "what": "The limits of the mask do not move on with the rows.",
        "file": "src/kernels/cp_async/bwd_steps.cuh",
        "old": "fields[kMaskBegin] = fields[kMaskEnd] = fields[kLeft] =",
        "new": "fields[kMaskBegin] = fields[kMaskEnd] = 0, fields[kLeft] =",
        "units": BACKWARD,
    },
    {
        "name": "dq_of_late_warps",
        "what": "Warps that sum dq behind their weights do so for the last step only.",
        "file": "src/kernels/cp_async/bwd_tile.cuh",
        "old": "if (!dq_first && i > 0) add_dq_of",
        "new": "if (!dq_first && i < 0) add_dq_of",
        "units": units("bwd", 128),
    },
    {
        "name": "deterministic_dq_ends_early",
        "what": "The deterministic dq leaves out the last key of each block of rows.",
        "file": "src/kernels/cp_async/bwd_dq.cuh",
        "old": "visible_keys_of_rows(a, s, own.begin, own.end);",
        "new": "visible_keys_of_rows(a, s, own.begin, own.end - 1);",
        "units": BACKWARD,
    },
    *dq_sums_faults(BACKWARD),
]
