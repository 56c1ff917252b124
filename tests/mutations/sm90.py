# SPDX-License-Identifier: MIT
"""Faults in the sm90 room. One dtype and the capacity 64 are recompiled, or the capacity that has what a fault is about.
None of them makes a barrier wait for ever: what hangs is caught by no comparison.
scripts/mutation_faults.py says what the fields mean.
"""
from common import RACE, conformance, delta_faults


def units(operation, capacity):
    return [f"kernels/sm90/{operation}___nv_bfloat16_{capacity}.cu"]


FORWARD = units("fwd", 64)
BACKWARD = units("bwd", 64)
UNITS = FORWARD + BACKWARD
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
        "old": "unsigned marked = masks_pairs(a) ? rows_to_redo(o, state, own) : 0;",
        "new": "unsigned marked = 0;",
    },
    # ---- Rows
    {
        "name": "wrong_key_head",
        "what": "Query heads are dealt out to key heads in turn, not in groups.",
        "file": "src/kernels/sm90/fwd_load.cuh",
        "old": "      key_head(a, task.at.head),",
        "new": "      task.at.head % a.num_heads_k,",
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
        "units": units("fwd", 256),
    },
    # ---- Backward pass: layout and schedule
    {
        "name": "dq_columns_of_one_group",
        "what": "Quads of dq of both warpgroups are taken for the same columns.",
        "file": "src/kernels/sm90/dq_tiles.h",
        "old": "return {row, group * 64 + column};",
        "new": "return {row, column};",
        **LAYOUT,
    },
    {
        "name": "tiles_of_dq_overlap",
        "what": "Packed sequences that end inside of a tile share it with the next one.",
        "file": "src/kernels/sm90/dq_tiles.h",
        "old": "return head * per_head + rows.first / block_m + entry;",
        "new": "return head * per_head + rows.first / block_m;",
        **LAYOUT,
    },
    {
        "name": "last_heads_lost",
        "what": "The last group of heads counts as whole.",
        "file": "src/kernels/sm90/schedule.h",
        "old": "const uint32_t own = heads - first < group_heads ? heads - first : group_heads;",
        "new": "const uint32_t own = group_heads;",
        **SCHEDULE,
    },
    # ---- Backward pass: barriers
    {
        "name": "no_wait_for_rows",
        "what": "Products begin before q has arrived.",
        "file": "src/kernels/sm90/bwd_compute.cuh",
        "old": "    block.q.wait_full(ring_position<kTile.stages>(count));\n",
        "new": "",
        "units": BACKWARD,
        "tests": [*TESTS, *RACE],
        "runs": 3,
    },
    {
        "name": "rows_released_early",
        "what": "dout is given back to the loader while the product with it runs.",
        "file": "src/kernels/sm90/bwd_compute.cuh",
        "old": "    wait_products<kLast ? 1 : 2>();\n    pin(dv);\n    pin(p);\n    block.dout.release({rows_stage(1)});\n",
        "new": "    block.dout.release({rows_stage(1)});\n    wait_products<kLast ? 1 : 2>();\n    pin(dv);\n    pin(p);\n",
        "units": BACKWARD,
        "tests": [*TESTS, *RACE],
        "runs": 3,
    },
    {
        "name": "weights_not_published",
        "what": "ds is multiplied before its writes are visible to products.",
        "file": "src/kernels/sm90/bwd_compute.cuh",
        "old": "    publish_writes();\n    ds_stage =",
        "new": "    ds_stage =",
        "units": BACKWARD,
        "tests": [*TESTS, *RACE],
        "runs": 3,
    },
    # ---- Backward pass: weights and sums
    {
        "name": "edge_of_weights_unmasked",
        "what": "Weights of pairs that do not see each other stay.",
        "file": "src/kernels/sm90/bwd_compute.cuh",
        "old": "    if (now.edge) hide(s);\n",
        "new": "",
        "units": BACKWARD,
    },
    {
        "name": "nothing_seen_counts",
        "what": "A row that saw nothing has weights.",
        "file": "src/kernels/sm90/bwd_compute.cuh",
        "old": "    if (now.unusual) hide_rows<true>(s, shift);\n",
        "new": "",
        "units": BACKWARD,
    },
    {
        "name": "sums_of_the_keys_before",
        "what": "dv of a tile begins with that of the tile before.",
        "file": "src/kernels/sm90/bwd_compute.cuh",
        "old": "multiply<T>(dv, p[i], offset_by(queries, RowTile::down_rows(i)), !kFirst || i > 0);",
        "new": "multiply<T>(dv, p[i], offset_by(queries, RowTile::down_rows(i)), true);",
        "units": BACKWARD,
    },
    {
        "name": "softcap_not_differentiated",
        "what": "ds leaves out the derivative of the softcap.",
        "file": "src/kernels/sm90/bwd_weights.cuh",
        "old": "      dp[n][2 * i + e] *= fmaf(-t, t, 1.0f);\n",
        "new": "",
        "units": BACKWARD,
    },
    {
        "name": "one_head_of_the_group",
        "what": "Keys see the rows of the first query head of their group only, once for each head.",
        "file": "src/kernels/sm90/bwd_load.cuh",
        "old": "           task.at.head * group_size(a) + member,",
        "new": "           task.at.head * group_size(a),",
        "units": BACKWARD,
    },
    {
        "name": "neighbours_rows_count",
        "what": "Rows behind a sequence's last one stay in the buffers: what is NaN there is multiplied by 0.",
        "file": "src/kernels/sm90/bwd_load.cuh",
        "old": "const bool query_strangers = a.cu_seqlens_q != nullptr || a.seqused_q != nullptr;",
        "new": "const bool query_strangers = false;",
        "units": BACKWARD,
    },
    {
        "name": "hidden_nan_leaks_into_keys",
        "what": "Keys that hidden rows made NaN are not computed again.",
        "file": "src/kernels/sm90/bwd_store.cuh",
        "old": "  if (masks_pairs(a)) {\n    marked",
        "new": "  if (false) {\n    marked",
        "units": BACKWARD,
    },
    {
        "name": "hidden_nan_leaks_into_queries",
        "what": "Rows of dq that hidden keys made NaN are not computed again.",
        "file": "src/kernels/sm90/bwd_rows.cuh",
        "old": "      if (!staged.not_finite[row]) continue;",
        "new": "      if (true) continue;",
        "units": BACKWARD,
    },
    {
        "name": "dk_not_scaled",
        "what": "dk lacks the factor that scores have.",
        "file": "src/kernels/sm90/bwd_store.cuh",
        "old": "for (int j = 0; j < 4; ++j) dk[n][j] *= a.scale;",
        "new": "for (int j = 0; j < 0; ++j) dk[n][j] *= a.scale;",
        "units": BACKWARD,
    },
    *delta_faults(BACKWARD),
]
