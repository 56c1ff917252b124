# SPDX-License-Identifier: MIT
"""Tests of the pages that scripts/performance_report.py makes of comparison.json, on records made here."""
import copy
import importlib.util
import json
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scripts")]

import report_comparison  # noqa: E402
import test_performance_report as pages  # noqa: E402
from peers import cases, records  # noqa: E402

MACHINE = dict(
    gpu="Test GPU", compute_capability="9.0", driver="1.2", cuda="13.0", torch="2.11", cudnn=91900, method="fair"
)


def measured(case, rates, error=1e-3):
    """Records of a case, {library or kernel of cuflash: TFLOP/s}; the first is dispatch's choice."""
    found = []
    for number, (name, rate) in enumerate(rates.items()):
        library = name if name in ("cudnn", "flash2", "flash3", "mem_efficient", "naive") else "cuflash"
        more = {"cuflash": {"chosen": number == 0}, "flash3": {"version": "f3c0"}}.get(library, {})
        kernel = name if library == "cuflash" else f"kernel of {name}"
        found.append(records.record(case, library, kernel, [case.flops / rate * 1e-9], error, **more))
    return found


def grid_case(op, seqlen, causal=False, heads_k=16):
    return cases.Case(op, "bf16", 128, causal, 16384 // seqlen, 16, heads_k, seqlen, seqlen)


def run_of(found):
    return {
        "commit": "abc123",
        "library": "libcuflash 0.1.0",
        "started": "2020-01-02T03:04:05Z",
        "command": "compare_torch.py --set grid",
        "matmul_tflops": {"bf16": 700.0},
        "skipped": {"naive: needs 90 GiB for its score matrices": ["a", "b"]},
        "records": found,
    }


def synthetic():
    found = [
        *measured(grid_case("fwd", 1024), {"fast": 300.0, "scalar": 3.0, "flash2": 400.0, "cudnn": 500.0}),
        *measured(grid_case("fwd", 4096), {"fast": 500.0, "flash2": 400.0, "cudnn": 250.0, "naive": 600.0}),
        *measured(grid_case("fwd", 2048, heads_k=4), {"fast": 480.0, "flash2": 240.0}),
        *measured(grid_case("bwd", 4096, causal=True), {"fast": 123.0}, error=2e-3),
    ]
    return records.merged(None, MACHINE, {"grid": run_of(found)})


class Pages(pages.Repository):
    def written(self, content):
        (self.gpu / "comparison.json").write_text(json.dumps(content), encoding="utf-8")
        self.assertEqual(self.run_script("--no-plots"), (0, ""))
        return self.page()

    def test_rates_and_ratios(self):
        page = self.written(synthetic())
        columns = "head_dim | mask | shape | fast | scalar | cudnn | flash2 | naive"
        self.assertIn(f"| {columns} | choice / best peer | choice / flash2 | choice / scalar |", page)
        self.assertIn("| 128 | full | b16_h16_s1024 | **300** | 3.00 | 500 | 400 |  | 0.600 | 0.750 | 100 |", page)
        self.assertIn("| 128 | full | b4_h16_s4096 | **500** |  | 250 | 400 | 600 | 1.25 | 1.25 |  |", page)
        self.assertIn("| 128 | full | b8_h16_hk4_s2048 | **480** |  |  | 240 |  | 2.00 | 2.00 |  |", page)
        self.assertIn("Choice over best peer: geometric mean 1.14, lowest 0.600.", page)
        self.assertIn("Choice over flash2: geometric mean 1.23, lowest 0.750.", page)

    def test_flash3_is_a_peer_with_its_commit(self):
        content = synthetic()
        self.assertNotIn("at commit", self.written(content))
        content["sets"]["grid"]["records"] += measured(grid_case("fwd", 4096), {"flash3": 625.0})
        page = self.written(content)
        self.assertIn("| cudnn | flash2 | flash3 | naive | choice / best peer | choice / flash2 | choice / flash3 |", page)
        self.assertIn("| **500** |  | 250 | 400 | 625 | 600 | 0.800 | 1.25 | 0.800 |  |", page)
        self.assertIn("Choice over flash3: geometric mean 0.800, lowest 0.800.", page)
        self.assertIn("Of another source: flash3 at commit f3c0.", page)
        self.assertIn("Against the best of PyTorch 2.11's kernels and flash3 at commit f3c0 in one run", self.readme())
        self.assertIn("| forward | bf16 | 128 | full | b4_h16_s4096 | fast | 500 | flash3 | 625 |", self.readme())

    def test_what_else_is_on_the_page(self):
        page = self.written(synthetic())
        self.assertIn("# Test GPU\n", page)
        self.assertIn("Commit abc123, 2020-01-02T03:04:05Z, `compare_torch.py --set grid`.", page)
        self.assertIn("Matrix product of the same run, TFLOP/s: bf16 700.", page)
        self.assertIn("- naive: needs 90 GiB for its score matrices (2 cases)", page)
        self.assertIn("|  | fwd bf16 | bwd bf16 |", page)
        self.assertIn("| fast | 1.0e-03 | 2.0e-03 |", page)
        self.assertIn("| cudnn | 1.0e-03 |  |", page)

    def test_backward_without_peers_has_no_ratio(self):
        page = self.written(synthetic())
        self.assertIn("| head_dim | mask | shape | fast | choice / best peer |\n", page)
        self.assertIn("| 128 | causal | b4_h16_s4096 | **123** |  |\n", page)
        self.assertEqual(page.count("geometric mean"), 2)

    def test_readme_has_the_longest_shape(self):
        self.written(synthetic())
        text = self.readme()
        self.assertIn("| forward | bf16 | 128 | full | b4_h16_s4096 | fast | 500 | flash2 | 400 | 1.25 |", text)
        self.assertNotIn("s1024", text)
        self.assertNotIn("hk4", text)

    def test_beside_a_record_of_cuflash_bench(self):
        self.record(pages.synthetic_record())
        page = self.written(synthetic())
        self.assertIn("## comparison.json", page)
        self.assertIn("## bench.json", page)
        self.assertIn("A call costs the host", self.readme())

    def test_result_that_is_not_finite(self):
        content = synthetic()
        content["sets"]["grid"]["records"][0]["error"] = None
        self.assertIn("| fast | not finite | 2.0e-03 |", self.written(content))

    def test_check_sees_a_changed_record(self):
        content = synthetic()
        self.written(content)
        self.draw_nothing()
        self.assertEqual(self.run_script("--check"), (0, ""))
        content["sets"]["grid"]["records"][0]["tflops"] = 299.0
        (self.gpu / "comparison.json").write_text(json.dumps(content), encoding="utf-8")
        status, message = self.run_script("--check")
        self.assertEqual(status, 1)
        self.assertIn("docs/performance/testgpu/README.md is not what", message)

    def test_files_that_are_no_records(self):
        broken = copy.deepcopy(synthetic())
        del broken["sets"]["grid"]["records"][0]["tflops"]
        for content in ({}, {**synthetic(), "schema": 99}, broken):
            (self.gpu / "comparison.json").write_text(json.dumps(content), encoding="utf-8")
            status, message = self.run_script("--no-plots")
            self.assertEqual(status, 1)
            self.assertIn("comparison.json: not a record of compare_torch.py", message)


class Plots(pages.Repository):
    def test_points(self):
        plots = list(report_comparison.plots(synthetic()))
        self.assertEqual([name for name, _, _ in plots], ["comparison_grid_fwd_bf16.svg"])
        points = plots[0][2]
        self.assertEqual({(p.kernel, p.seqlen, p.rate) for p in points if p.kernel == "cudnn"},
                         {("cudnn", 1024, 500.0), ("cudnn", 4096, 250.0)})  # fmt: skip
        self.assertNotIn(2048, {p.seqlen for p in points})

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
    def test_svg(self):
        (self.gpu / "comparison.json").write_text(json.dumps(synthetic()), encoding="utf-8")
        self.assertEqual(self.run_script(), (0, ""))
        self.assertEqual([path.name for path in self.gpu.glob("*.svg")], ["comparison_grid_fwd_bf16.svg"])


if __name__ == "__main__":
    unittest.main()
