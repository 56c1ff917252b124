# SPDX-License-Identifier: MIT
"""Tests of scripts/profile_report.py. The CSV text is made up here; it has the form of ncu --csv --page raw."""
import contextlib
import csv
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scripts")]

import profile_report  # noqa: E402
import test_performance_report as pages  # noqa: E402

STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
UNITS = {
    "gpu__time_duration.sum": "ns",
    "launch__registers_per_thread": "register/thread",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "%",
    "sm__maximum_warps_per_active_cycle_pct": "%",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": "%",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "",
    STALLED.format("long_scoreboard"): "inst",
    STALLED.format("barrier"): "inst",
    STALLED.format("selected"): "inst",
    STALLED.format("barrier_not_issued"): "inst",
}
VALUES = ("1,234,500", "128", "24.5", "25", "61.25", "40.5", "55.5", "1,000", "20,000", "2.0", "1.0", "1.0", "9.0")
DELTA = "void cuflash::scalar::bwd_delta_kernel<float, (int)64>(cuflash::BwdArgs, float *)"
DQ = "void cuflash::scalar::<unnamed>::bwd_dq_kernel<float, (int)64>(cuflash::BwdArgs, const float *)"
FIXED = ("ID", "Process Name", "Kernel Name", "Block Size", "Grid Size")


def made_up_csv(kernels, units=UNITS, values=VALUES):
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow((*FIXED, *units))
    writer.writerow(("",) * len(FIXED) + tuple(units.values()))
    for number, kernel in enumerate(kernels):
        writer.writerow((str(number), "cuflash_bench", kernel, "(128, 1, 1)", "(32, 16, 4)", *values))
    return f"==PROF== Connected to process 1\n{text.getvalue()}==PROF== Disconnected\n"


class Parser(unittest.TestCase):
    def test_launches_of_one_call(self):
        found = profile_report.launches(made_up_csv([DELTA, DQ, DELTA, DQ, DELTA]))
        self.assertEqual([launch["kernel"] for launch in found], ["bwd_delta_kernel", "bwd_dq_kernel"])
        self.assertEqual((found[0]["grid"], found[0]["block"]), ("(32, 16, 4)", "(128, 1, 1)"))

    def test_values(self):
        (launch,) = profile_report.launches(made_up_csv([DELTA]))
        self.assertEqual(launch["duration_us"], 1234.5)
        self.assertEqual(
            (launch["registers"], launch["occupancy_pct"], launch["sm_throughput_pct"]), (128, 24.5, 61.25)
        )
        self.assertEqual(launch["fma_pipe_pct"], 55.5, "the name that a newer GPU has for it")
        self.assertEqual((launch["shared_bank_conflicts"], launch["shared_wavefronts"]), (1000, 20000))
        self.assertIsNone(launch["dram_throughput_pct"])

    def test_stalls_are_shares_largest_first(self):
        (launch,) = profile_report.launches(made_up_csv([DELTA]))
        self.assertEqual(
            list(launch["stalls"].items()), [("long_scoreboard", 0.5), ("barrier", 0.25), ("selected", 0.25)]
        )

    def test_units_of_time(self):
        for unit, expected in (("ns", 1.5), ("nsecond", 1.5), ("us", 1500), ("ms", 1.5e6)):
            units = {**UNITS, "gpu__time_duration.sum": unit}
            (launch,) = profile_report.launches(made_up_csv([DELTA], units, ("1500", *VALUES[1:])))
            self.assertEqual(launch["duration_us"], expected, unit)

    def test_no_launch(self):
        with self.assertRaisesRegex(profile_report.ReportError, "no launch was profiled"):
            profile_report.launches("==PROF== Connected\n")
        with self.assertRaisesRegex(profile_report.ReportError, "ERR_NVGPUCTRPERM"):
            profile_report.launches("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM: no permission\n")

    def test_a_figure_that_is_needed_is_missing(self):
        with self.assertRaisesRegex(profile_report.ReportError, "bwd_delta.*did not report duration_us"):
            profile_report.launches(made_up_csv([DELTA], UNITS, ("n/a", *VALUES[1:])))

    def test_names(self):
        for name, expected in {
            DELTA: "bwd_delta_kernel",
            DQ: "bwd_dq_kernel",
            "void cuflash::(anonymous namespace)::fwd_kernel<float>(Args)": "fwd_kernel",
            "fwd_plain(float *)": "fwd_plain",
        }.items():
            self.assertEqual(profile_report.short_name(name), expected)


class Records(unittest.TestCase):
    MACHINE = {"gpu": "Test GPU", "driver": "1.2", "ncu": "3"}

    def run_of(self, benchmark, commit="new"):
        return {"benchmark": benchmark, "commit": commit, "launches": []}

    def test_a_run_replaces_that_of_the_same_benchmark(self):
        old = profile_report.merged(None, self.MACHINE, self.run_of("fwd/a", "old"))
        old = profile_report.merged(old, self.MACHINE, self.run_of("fwd/b", "old"))
        new = profile_report.merged(old, {**self.MACHINE, "ncu": "4"}, self.run_of("fwd/a"))
        self.assertEqual(
            [(run["benchmark"], run["commit"]) for run in new["runs"]], [("fwd/b", "old"), ("fwd/a", "new")]
        )

    def test_another_gpu_or_driver_keeps_nothing(self):
        old = profile_report.merged(None, self.MACHINE, self.run_of("fwd/a", "old"))
        for key in ("gpu", "driver"):
            new = profile_report.merged(old, {**self.MACHINE, key: "other"}, self.run_of("fwd/b"))
            self.assertEqual([run["benchmark"] for run in new["runs"]], ["fwd/b"])


class Pages(pages.Repository):
    BENCHMARK = "bwd/scalar/fp32/d64/full/b4_h16_s2048/cold"

    def profile(self, text, benchmark=BENCHMARK):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ncu.csv"
            path.write_text(text, encoding="utf-8")
            arguments = ["--csv", str(path), "--benchmark", benchmark, "--out", str(self.gpu / "profile.json")]
            arguments += ["--gpu", "Test GPU", "--driver", "1.2", "--ncu", "3.4", "--commit", "abc123"]
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = profile_report.main(arguments)
        return status, err.getvalue()

    def test_table(self):
        self.assertEqual(self.profile(made_up_csv([DELTA, DQ, DELTA])), (0, ""))
        self.assertEqual(self.profile(made_up_csv([DELTA]), self.BENCHMARK.replace("bwd", "fwd")), (0, ""))
        self.assertEqual(self.run_script(), (0, ""))
        page = self.page()
        self.assertIn("# Test GPU\n", page)
        self.assertLess(page.index("### fwd scalar fp32 d64 full"), page.index("### bwd scalar fp32 d64 full"))
        self.assertIn(
            "| bwd_dq_kernel | long_scoreboard 50, barrier 25, selected 25 | 1234 | 128 | 24.5 of 25.0 | 61.2 | 40.5 |",
            page,
        )
        self.assertIn("| 55.5 |  |  | 5.00 |", page)
        self.assertEqual(self.run_script("--check"), (0, ""))

    def test_failure_writes_nothing(self):
        status, message = self.profile("==ERROR== nothing\n")
        self.assertEqual(status, 1)
        self.assertIn(f"{self.BENCHMARK}: ==ERROR== nothing", message)
        self.assertFalse((self.gpu / "profile.json").exists())

    def test_file_that_is_no_record(self):
        (self.gpu / "profile.json").write_text(json.dumps({"schema": 99}), encoding="utf-8")
        status, message = self.run_script("--no-plots")
        self.assertEqual(status, 1)
        self.assertIn("profile.json: not a record of profile_ncu.sh", message)


if __name__ == "__main__":
    unittest.main()
