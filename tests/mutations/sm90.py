# SPDX-License-Identifier: MIT
"""Faults in the sm90 room. One dtype and the capacity 64 are recompiled, or the capacity that has what a fault is about.
None of them makes a barrier wait for ever: what hangs is caught by no comparison.
scripts/mutation_faults.py says what the fields mean.
"""
from common import RACE, conformance


def units(capacity):
    return [f"kernels/sm90/fwd___nv_bfloat16_{capacity}.cu"]


FORWARD = units(64)
UNITS = FORWARD
TESTS = conformance("gpu", grid="*Bf16")
LAYOUT = {"units": ["tests/host/sm90_layout_test.cpp"], "tests": [("test_host_sm90_layout", "*", 0)]}
SCHEDULE = {"units": ["tests/host/sm90_schedule_test.cpp"], "tests": [("test_host_sm90_schedule", "*", 0)]}

FAULTS = [
    # ---- Layout and descriptors
    {
        "name": "distances_exchanged",
        "what": "The descriptor of v has its two distances in the wrong fields.",
        "file": "src/kernels/sm90/swizzle.h",
        "old": "return describe(address, Panels<kRows>::kBytes, kAtomBytes);",
        "new": "return describe(address, kAtomBytes, Panels<kRows>::kBytes);",
        **LAYOUT,
    },
    {
        "name": "panel_left_out",
        "what": "Products of q and k that are deeper than 64 elements go on in the row, not in the next panel.",
        "file": "src/kernels/sm90/swizzle.h",
        "old": "return step * kStep / kPanel * kBytes + step * kStep % kPanel * 2;",
        "new": "return step * kStep * 2;",
        **LAYOUT,
    },
    {
        "name": "chunks_not_exchanged",
        "what": "o is staged as it is, but the copy takes the stage for swizzled.",
        "file": "src/kernels/sm90/swizzle.h",
        "old": "((chunk ^ (row % 8)) * 16)",
        "new": "(chunk * 16)",
        **LAYOUT,
    },
    # ---- Schedule
    {
        "name": "tile_lost",
        "what": "In reverse order, blocks are counted from one too far on.",
        "file": "src/kernels/sm90/schedule.h",
        "old": "(reversed ? blocks - 1 - block : block)",
        "new": "(reversed ? blocks - block : block)",
        **SCHEDULE,
    },
    {
        "name": "never_reversed",
        "what": "Blocks take tiles in the same order in every turn: the first get the longest each time.",
        "file": "src/kernels/sm90/schedule.h",
        "old": "by_length && turn % 2 == 1",
        "new": "by_length && turn % 2 == 2",
        **SCHEDULE,
    },
    # ---- Barriers
    {
        "name": "no_wait_for_keys",
        "what": "Scores are multiplied before k has arrived.",
        "file": "src/kernels/sm90/fwd_compute.cuh",
        "old": "      block.k.wait_full(k);\n      turns.wait();\n      multiply_scores();\n      wait_values",
        "new": "      turns.wait();\n      multiply_scores();\n      wait_values",
        "tests": [*TESTS, *RACE],
        "runs": 3,
    },
    {
        "name": "no_wait_for_values",
        "what": "o is multiplied before v has arrived.",
        "file": "src/kernels/sm90/fwd_compute.cuh",
        "old": "  const auto wait_values = [&](int count) {\n    block.v.wait_full(v);\n",
        "new": "  const auto wait_values = [&](int count) {\n",
        "tests": [*TESTS, *RACE],
        "runs": 3,
    },
    {
        "name": "keys_released_early",
        "what": "k is given back to the loader while products still read it.",
        "file": "src/kernels/sm90/fwd_compute.cuh",
        "old": "      wait_products<1>();\n      scores_are_done(n == 1);\n",
        "new": "      scores_are_done(n == 1);\n      wait_products<1>();\n",
        "tests": [*TESTS, *RACE],
        "runs": 3,
    },
    # ---- Masks, softmax and sums
    {
        "name": "end_of_step_unmasked",
        "what": "A step in which some rows do not see the last keys counts as one without a mask.",
        "file": "src/kernels/sm90/fwd_compute.cuh",
        "old": "if (n < clean.begin || n >= clean.end) {",
        "new": "if (n < clean.begin) {",
    },
    {
        "name": "output_not_rescaled",
        "what": "Sums stay relative to the old reference when it moves.",
        "file": "src/kernels/sm90/fwd_compute.cuh",
        "old": "        for_each_sum(o, [&](float& x, int i, int) { x *= rescale[i]; });\n",
        "new": "",
        "tests": [("test_gpu_numerics", "*", 0), ("test_gpu_known_faults", "*", 0), *TESTS],
    },
    {
        "name": "negative_limits_compared",
        "what": "Negative scores are compared with negative limits as integers, where the order is reversed.",
        "file": "src/kernels/sm90/softmax.cuh",
        "old": "limit[i] = bits < 0 ? INT_MIN : bits;",
        "new": "limit[i] = bits;",
        "tests": [("test_gpu_numerics", "*", 0), *TESTS],
    },
    {
        "name": "sums_of_the_tile_before",
        "what": "o of a tile begins with that of the tile before.",
        "file": "src/kernels/sm90/fwd_compute.cuh",
        "old": "offset_by(values, KVTile::down_rows(step)), !first || step > 0);",
        "new": "offset_by(values, KVTile::down_rows(step)), true);",
    },
    {
        "name": "strangers_count",
        "what": "What lies behind a sequence's keys is multiplied by weights of 0 as it is: NaN for NaN.",
        "file": "src/kernels/sm90/fwd_compute.cuh",
        "old": "if (!strangers || count >= kBlockN) return;",
        "new": "if (count <= kBlockN) return;",
    },
    {
        "name": "hidden_nan_leaks",
        "what": "Rows that hidden values made NaN are not computed again.",
        "file": "src/kernels/sm90/fwd_store.cuh",
        "old": "const bool check = masks_pairs(a);",
        "new": "const bool check = false;",
    },
    # ---- Rows
    {
        "name": "wrong_key_head",
        "what": "Query heads are dealt out to key heads in turn, not in groups.",
        "file": "src/kernels/sm90/fwd_load.cuh",
        "old": "      key_head(a, task.at.head),\n",
        "new": "      task.at.head % a.num_heads_k,\n",
    },
    {
        "name": "rows_of_the_next_sequence",
        "what": "A box of o is stored whole though the sequence ends in it.",
        "file": "src/kernels/sm90/fwd_store.cuh",
        "old": "const bool whole = rows.end - rows.begin == kGroupRows || clipped;",
        "new": "const bool whole = true;",
    },
    {
        "name": "second_half_of_o",
        "what": "Where o is staged in two parts, both are the first.",
        "file": "src/kernels/sm90/fwd_store.cuh",
        "old": "const float(&x)[4] = o[0][kFirst / 8 + n];",
        "new": "const float(&x)[4] = o[0][n];",
        "units": units(256),
    },
]
