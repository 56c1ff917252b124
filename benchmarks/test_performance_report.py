# SPDX-License-Identifier: MIT
"""Tests of scripts/performance_report.py on records made here."""
import contextlib
import importlib.util
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

import performance_report as report  # noqa: E402

README = f"# project\n\nbefore\n{report.BEGIN}\nout of date\n{report.END}\nafter\n"


def attention(name, rate, milliseconds, **counters):
    return {"name": name, "real_time": milliseconds, "time_unit": "ms", "samples": 20, "TFLOP/s": rate, **counters}


def synthetic_record():
    return {
        "context": {
            "gpu": "Test GPU",
            "commit": "abc123",
            "started": "2020-01-02T03:04:05Z",
            "command": "cuflash_bench",
        },
        "benchmarks": [
            {"name": "ceiling/copy", "real_time": 1.0, "time_unit": "ms", "samples": 20, "GB/s": 4000.0},
            {"name": "ceiling/matmul/bf16", "real_time": 1.5, "time_unit": "ms", "samples": 20, "TFLOP/s": 700.0},
            {
                "name": "overhead/call/auto",
                "real_time": 3.25,
                "time_unit": "us",
                "samples": 20,
                "empty_launch_us": 2.0,
                "on_top_us": 1.25,
            },
            {"name": "overhead/query/host", "real_time": 0.125, "time_unit": "us", "samples": 20},
            attention("fwd/scalar/bf16/d128/causal/b32_h16_s512/cold", 1.5, 20.0, rel_error=2e-3),
            attention("fwd/scalar/bf16/d128/causal/b16_h16_s1024/cold", 1.75, 40.0, rel_error=3e-3),
            attention("fwd/naive/bf16/d128/causal/b16_h16_s1024/cold", 123.4, 0.5678),
            attention("fwd/scalar/bf16/d64/causal/b16_h32_s1024/cold", 1.25, 41.0),
            attention("fwd/scalar/bf16/d64/causal/b16_h32_s1024/hot", 1.26, 40.0),
            attention("bwd/scalar/fp32/d192_v128/window_l256_r0/b4_h16_hk2_q1_k4096/cold", 0.01234, 1234.5),
        ],
    }


class Repository(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.gpu = self.root / "docs" / "performance" / "testgpu"
        self.gpu.mkdir(parents=True)
        (self.root / "README.md").write_text(README, encoding="utf-8")

    def record(self, content, name="bench"):
        (self.gpu / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")

    def run_script(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = report.main(["--root", str(self.root), *arguments])
        return status, err.getvalue()

    def draw_nothing(self):
        for path, _, _ in report.plots(self.gpu, report.load_gpu(self.gpu)):
            path.write_text("<svg/>", encoding="utf-8")

    def page(self):
        return (self.gpu / "README.md").read_text(encoding="utf-8")

    def readme(self):
        return (self.root / "README.md").read_text(encoding="utf-8")


class Pages(Repository):
    def test_tables_of_a_record(self):
        self.record(synthetic_record())
        self.assertEqual(self.run_script("--no-plots"), (0, ""))
        page = self.page()
        self.assertIn("# Test GPU\n", page)
        self.assertIn("| commit | abc123 |", page)
        self.assertIn("| copy | 4000 GB/s | 1.00 | 20 |", page)
        self.assertIn("| matrix product, bf16 | 700 TFLOP/s | 1.50 | 20 |", page)
        self.assertIn("| call | auto | 3.25 | 2.00 | 1.25 |", page)
        self.assertIn("| query | host | 0.125 |  |  |", page)
        self.assertIn("| shape | L2 | scalar, TFLOP/s | naive, TFLOP/s | scalar, ms | naive, ms |", page)
        self.assertIn("| 128 | causal | b16_h16_s1024 | cold | 1.75 | 123 | 40.0 | 0.568 |", page)
        self.assertIn("| 128 | causal | b32_h16_s512 | cold | 1.50 |  | 20.0 |  |", page)
        self.assertIn("| 192, v 128 | window_l256_r0 | b4_h16_hk2_q1_k4096 | cold | 0.0123 | 1234 |", page)
        self.assertIn("- scalar: 3.0e-03 over 2 calls", page)

    def test_head_dims_are_sorted_as_numbers(self):
        self.record(synthetic_record())
        self.run_script("--no-plots")
        page = self.page()
        self.assertLess(page.index("| 64 | causal"), page.index("| 128 | causal"))

    def test_readme_block_has_the_longest_shapes_and_keeps_the_rest(self):
        self.record(synthetic_record())
        self.run_script("--no-plots")
        text = self.readme()
        self.assertTrue(text.startswith("# project\n\nbefore\n"))
        self.assertTrue(text.endswith(f"{report.END}\nafter\n"))
        self.assertNotIn("out of date", text)
        self.assertIn("| forward | bf16 | 128 | causal | b16_h16_s1024 | 1.75 | 123 |", text)
        self.assertNotIn("b32_h16_s512", text)
        self.assertIn("Test GPU, commit abc123, 2020-01-02", text)
        self.assertIn("A call costs the host 3.25 µs, of which an empty launch is 2.00 µs.", text)

    def test_quick_record_comes_last(self):
        self.record(synthetic_record(), "quick")
        self.record(synthetic_record(), "table")
        self.run_script("--no-plots")
        page = self.page()
        self.assertLess(page.index("## table.json"), page.index("## quick.json"))

    def test_failed_benchmarks_are_named(self):
        content = synthetic_record()
        content["benchmarks"].append(
            {"name": "fwd/naive/bf16/d64/full/b1_h1_s8/cold", "error_occurred": True, "error_message": "cudaMalloc: no"}
        )
        self.record(content)
        self.run_script("--no-plots")
        self.assertIn("- fwd/naive/bf16/d64/full/b1_h1_s8/cold: cudaMalloc: no", self.page())

    def test_no_records(self):
        self.assertEqual(self.run_script("--no-plots"), (0, ""))
        self.assertIn("Nothing has been recorded yet.", self.readme())


class Check(Repository):
    def test_passes_on_what_was_written(self):
        self.record(synthetic_record())
        self.run_script("--no-plots")
        self.draw_nothing()
        self.assertEqual(self.run_script("--check"), (0, ""))

    def test_fails_when_a_record_changes(self):
        content = synthetic_record()
        self.record(content)
        self.run_script("--no-plots")
        self.draw_nothing()
        content["benchmarks"][5]["TFLOP/s"] = 2.0
        self.record(content)
        status, message = self.run_script("--check")
        self.assertEqual(status, 1)
        self.assertIn("docs/performance/testgpu/README.md is not what the records give", message)
        self.assertIn("README.md is not what", message)

    def test_fails_without_a_plot(self):
        self.record(synthetic_record())
        self.run_script("--no-plots")
        status, message = self.run_script("--check")
        self.assertEqual(status, 1)
        self.assertIn("docs/performance/testgpu/bench_fwd_bf16.svg", message)

    def test_writes_nothing(self):
        self.record(synthetic_record())
        self.run_script("--check")
        self.assertEqual(self.readme(), README)
        self.assertFalse((self.gpu / "README.md").exists())


class Errors(Repository):
    def expect(self, text):
        status, message = self.run_script("--no-plots")
        self.assertEqual(status, 1)
        self.assertIn(text, message)

    def test_markers_missing(self):
        (self.root / "README.md").write_text("nothing\n", encoding="utf-8")
        self.expect("README.md must hold")

    def test_not_json(self):
        (self.gpu / "bench.json").write_text("{", encoding="utf-8")
        self.expect("bench.json: not a record of cuflash_bench")

    def test_unknown_benchmark(self):
        content = synthetic_record()
        content["benchmarks"].append(attention("sideways/scalar/bf16/d64/full/b1_h1_s1/cold", 1, 1))
        self.record(content)
        self.expect("not a benchmark that this script knows")

    def test_context_incomplete(self):
        content = synthetic_record()
        del content["context"]["commit"]
        self.record(content)
        self.expect("context lacks commit")


class Numbers(unittest.TestCase):
    def test_three_digits(self):
        expected = {0: "0", 1234.5: "1234", 123.4: "123", 99.96: "100", 9.999: "10.0", 0.01234: "0.0123"}
        for value, text in expected.items():
            self.assertEqual(report.number(value), text)


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
class Plots(Repository):
    def test_one_svg_per_operation_and_dtype_with_several_lengths(self):
        self.record(synthetic_record())
        self.assertEqual(self.run_script(), (0, ""))
        self.assertEqual([path.name for path in self.gpu.glob("*.svg")], ["bench_fwd_bf16.svg"])
        first = (self.gpu / "bench_fwd_bf16.svg").read_bytes()
        self.assertEqual(self.run_script(), (0, ""))
        self.assertEqual((self.gpu / "bench_fwd_bf16.svg").read_bytes(), first)


if __name__ == "__main__":
    unittest.main()
