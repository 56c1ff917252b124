# SPDX-License-Identifier: MIT
"""Tests of compare_torch.py that need no GPU: cases, schedule, records, and the C interface as ctypes sees it.

usage: test_compare_torch.py --library LIBCUFLASH --compiler CC [UNITTEST OPTION]...

The computations of the baseline and of the reference are tested where PyTorch is installed.
"""
import argparse
import contextlib
import ctypes
import importlib.util
import io
import json
import math
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import compare_torch  # noqa: E402
from peers import cases, flash3_library, library, machine, records, schedule  # noqa: E402

given = argparse.Namespace(library=None, compiler=None)  # set by the command line below


def case(op="fwd", dtype="fp32", causal=False, **other):
    return cases.Case(
        op, dtype, **{**dict(head_dim=8, batch=1, heads=2, heads_k=2, seqlen_q=4, seqlen_k=4), **other}, causal=causal
    )


class Cases(unittest.TestCase):
    def test_work_is_counted_over_visible_pairs(self):
        square = case(head_dim=64, batch=4, heads=16, heads_k=16, seqlen_q=2048, seqlen_k=2048)
        self.assertEqual(square.flops, 4 * 4 * 16 * 2048**2 * 64)
        self.assertEqual(case(causal=True).flops, 4 * 2 * (4 + 3 + 2 + 1) * 8)
        self.assertEqual(case("bwd").flops * 2, case().flops * 5)

    def test_causal_with_unequal_lengths_is_refused(self):
        with self.assertRaises(ValueError):
            case(causal=True, seqlen_k=5)

    def test_grid_has_its_tokens_and_hidden_size_in_every_cell(self):
        grid = cases.grid_cases()
        equal_heads = [one for one in grid if one.heads == one.heads_k]
        self.assertEqual({one.batch * one.seqlen_q for one in equal_heads}, {16384})
        self.assertEqual({one.heads * one.head_dim for one in equal_heads}, {2048})
        self.assertEqual(len([one for one in grid if (one.op, one.dtype) == ("fwd", "bf16")]), 6 * 3 * 2 + 2)
        self.assertEqual(len([one for one in grid if (one.op, one.dtype) == ("bwd", "fp16")]), 2)
        grouped = [one for one in grid if one.heads != one.heads_k]
        self.assertEqual({(one.batch, one.heads, one.heads_k, one.seqlen_q) for one in grouped}, {(2, 32, 8, 8192)})

    def test_the_ladder_is_one_shape_that_scalar_can_do(self):
        ladder = cases.ladder_cases()
        self.assertEqual({(one.batch, one.heads, one.heads_k, one.seqlen_q) for one in ladder}, {(2, 16, 16, 4096)})
        limit = 1e9 * compare_torch.parse_options(["--set", "ladder"]).scalar_gflop
        self.assertLess(max(one.flops for one in ladder), limit)

    def test_every_set_says_whom_it_compares(self):
        for table in (cases.SET_LIBRARIES, cases.SET_KERNELS):
            self.assertEqual(list(table), list(cases.SETS))

    def test_no_case_is_twice_in_a_set(self):
        for name, make in cases.SETS.items():
            self.assertEqual(len(set(make())), len(make()), name)

    def test_forward_and_backward_of_a_problem_follow_each_other(self):
        for make in cases.SETS.values():
            self.assertEqual([one.op for one in make()], ["fwd", "bwd"] * (len(make()) // 2))

    def test_selection(self):
        chosen = cases.select(cases.fp32_cases(), op=["bwd"], head_dim=[64, 128], mask=["causal"])
        self.assertEqual(
            [(one.op, one.head_dim, one.causal) for one in chosen], [("bwd", 64, True), ("bwd", 128, True)]
        )
        self.assertEqual(cases.select(cases.fp32_cases(), dtype=["bf16"]), [])

    def test_names(self):
        one = case("bwd", "bf16", head_dim=128, batch=2, heads=32, heads_k=8, seqlen_q=8192, seqlen_k=8192)
        self.assertEqual(one.name(), "bwd bf16 d128 full 2x32/8x8192")


class Schedule(unittest.TestCase):
    def test_median(self):
        self.assertEqual(schedule.median([3.0, 1.0, 2.0]), 2.0)
        self.assertEqual(schedule.median([4.0, 1.0, 2.0, 3.0]), 2.5)

    def test_sample_count(self):
        self.assertEqual(schedule.sample_count(0.001, 1.0, 30), 30)
        self.assertEqual(schedule.sample_count(0.1, 1.0, 30), 10)
        self.assertEqual(schedule.sample_count(5.0, 1.0, 30), schedule.MIN_SAMPLES)

    def test_every_contestant_has_one_turn_per_round(self):
        self.assertEqual(schedule.turns({"a": 3, "b": 3}), ["a", "b"] * 3)

    def test_fewer_turns_are_spread(self):
        order = schedule.turns({"fast": 30, "slow": 3, "middle": 7})
        self.assertEqual({name: order.count(name) for name in set(order)}, {"fast": 30, "slow": 3, "middle": 7})
        places = [place for place, name in enumerate(order) if name == "slow"]
        gaps = [after - before for before, after in zip(places, places[1:])]
        self.assertGreater(min(gaps), len(order) // 4)

    def test_nobody(self):
        self.assertEqual(schedule.turns({}), [])


MACHINE = dict(
    gpu="Test GPU", compute_capability="9.0", driver="1.2", cuda="13.0", torch="2.11", cudnn=91900, method="fair"
)


def run_of(*found, commit="abc"):
    return {"commit": commit, "started": "2020-01-02T03:04:05Z", "skipped": {}, "records": list(found)}


class Records(unittest.TestCase):
    def one(self, error=1e-6, dtype="fp32", **more):
        return records.record(case(dtype=dtype), "cuflash", "scalar", [2.0, 1.0, 4.0], error, **more)

    def test_fields(self):
        one = self.one(chosen=True)
        self.assertEqual((one["ms"], one["min_ms"], one["samples"], one["chosen"]), (2.0, 1.0, 3, True))
        fast = records.record(case(seqlen_q=1000, seqlen_k=1000), "naive", "x", [0.5], 0.0)
        self.assertEqual(fast["tflops"], round(4 * 2 * 1000**2 * 8 / 0.5e-3 / 1e12, 3))
        required = "op dtype head_dim causal batch heads heads_k seqlen_q seqlen_k library kernel ms tflops error"
        self.assertLessEqual(set(required.split()), set(one))

    def test_wrong_results(self):
        self.assertIsNone(records.wrong(self.one(1e-6)))
        self.assertIn("2.00e-04 is above 1e-04", records.wrong(self.one(2e-4)))
        self.assertIsNone(records.wrong(self.one(3e-3, dtype="bf16")))
        self.assertIn("not finite", records.wrong(self.one(float("nan"))))
        self.assertIsNone(json.loads(json.dumps(self.one(float("nan"))))["error"])

    def test_a_run_replaces_its_set_and_keeps_the_others(self):
        old = records.merged(None, MACHINE, {"fp32": run_of(commit="old"), "grid": run_of(commit="old")})
        new = records.merged(old, {**MACHINE, "method": "fairer"}, {"fp32": run_of(self.one(), commit="new")})
        self.assertEqual({name: run["commit"] for name, run in new["sets"].items()}, {"fp32": "new", "grid": "old"})
        self.assertEqual(new["machine"]["method"], "fairer")

    def test_another_machine_keeps_nothing(self):
        old = records.merged(None, MACHINE, {"grid": run_of()})
        for key in records.MACHINE_KEYS:
            new = records.merged(old, {**MACHINE, key: "other"}, {"fp32": run_of()})
            self.assertEqual(list(new["sets"]), ["fp32"], key)

    def test_file_keeps_what_was_saved(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "deep" / "comparison.json"
            self.assertIsNone(records.load(path))
            content = records.merged(None, MACHINE, {"fp32": run_of(self.one(), self.one(0.5)), "grid": run_of()})
            records.save(path, content)
            self.assertEqual(records.load(path), content)
            lines = path.read_text(encoding="utf-8").splitlines()
            self.assertEqual(len([line for line in lines if '"kernel": "scalar"' in line]), 2)

    def test_files_that_are_no_records(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "comparison.json"
            for text in (
                "{",
                "[]",
                '{"schema": 1}',
                '{"schema": 1, "sets": {"a": {"records": [{}]}}}',
                '{"schema": 99}',
            ):
                path.write_text(text, encoding="utf-8")
                with self.assertRaises(records.RecordError, msg=text):
                    records.load(path)


class Machine(unittest.TestCase):
    def test_slug(self):
        self.assertEqual(machine.slug("NVIDIA H200"), "h200")
        self.assertEqual(machine.slug("NVIDIA X100-SXM4-80GB"), "x100-sxm4-80gb")

    def test_command_has_no_folders(self):
        line = machine.command_line(["--set", "fp32", "--library", "/a/b/libcuflash.so", "--out=c/d.json"])
        self.assertEqual(line, "compare_torch.py --set fp32 --library libcuflash.so --out=d.json")

    def test_commit_of_the_environment(self):
        with mock.patch.dict("os.environ", CUFLASH_COMMIT="1234"):
            self.assertEqual(machine.commit(), "1234")

    def test_library_that_is_not_there(self):
        self.assertIsNone(machine.find_library(HERE / "no" / "libcuflash.so"))


class CommandLine(unittest.TestCase):
    def test_lists(self):
        options = compare_torch.parse_options(["--set", "grid", "--op", "fwd,bwd", "--head-dim", "64,128"])
        self.assertEqual((options.op, options.head_dim), (["fwd", "bwd"], [64, 128]))

    def test_a_part_of_a_set_is_known_as_one(self):
        self.assertFalse(compare_torch.is_selection(compare_torch.parse_options(["--set", "fp32"])))
        for part in (["--op", "fwd"], ["--mask", "full"], ["--kernels", "auto"], ["--libraries", "cuflash"]):
            self.assertTrue(compare_torch.is_selection(compare_torch.parse_options(["--set", "fp32", *part])), part)

    def test_flash3_takes_part_if_there_is_one(self):
        without = compare_torch.parse_options(["--set", "grid"])
        self.assertEqual(compare_torch.libraries_of(without, "grid"), ["cuflash", "cudnn", "flash2"])
        given = compare_torch.parse_options(["--set", "grid", "--flash3", "libflash3.so"])
        self.assertEqual(compare_torch.libraries_of(given, "grid"), ["cuflash", "cudnn", "flash2", "flash3"])
        self.assertFalse(compare_torch.is_selection(given))
        with self.assertRaisesRegex(compare_torch.UsageError, "--flash3"):
            compare_torch.open_flash3(compare_torch.parse_options(["--set", "grid", "--libraries", "flash3"]))

    def test_unknown_names(self):
        for wrong in (["--set", "none"], ["--set", "fp32", "--op", "both"], ["--set", "fp32", "--libraries", "magic"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                compare_torch.parse_options(wrong)

    def test_forced_kernels_and_missing_libraries_are_refused(self):
        for environment, text in (({"CUFLASH_KERNEL": "scalar"}, "CUFLASH_KERNEL is set"), ({}, "not found")):
            err = io.StringIO()
            with mock.patch.dict("os.environ", environment, clear=True), contextlib.redirect_stderr(err):
                status = compare_torch.main(["--set", "fp32", "--library", str(HERE / "nowhere.so")])
            self.assertEqual(status, 1)
            self.assertIn(text, err.getvalue())


class Kernels(unittest.TestCase):
    """Which of cuflash's kernels are measured, with a library that says what it is told to."""

    def kernels(self, arguments, chosen, others, measured=None):
        comparison = object.__new__(compare_torch.Comparison)
        comparison.options = compare_torch.parse_options(["--set", "fp32", *arguments])
        comparison.library = mock.Mock()
        comparison.library.rooms.return_value = (chosen, others)
        comparison.skipped = {}
        comparison.library.deterministic_room.return_value = "repeating"
        found = comparison.cuflash_kernels(measured or case(), comparison.options.kernels)
        return [(one.label(), one.chosen) for one in found], comparison.skipped

    def test_by_default_all_that_accept(self):
        found, skipped = self.kernels([], "tiled", ["other", "scalar"])
        self.assertEqual(found, [("tiled", True), ("other", False), ("scalar", False)])
        self.assertEqual(skipped, {})

    def test_scalar_is_left_out_of_much_work_and_that_is_said(self):
        found, skipped = self.kernels(["--scalar-gflop", "0"], "tiled", ["scalar"])
        self.assertEqual(found, [("tiled", True)])
        self.assertEqual(skipped, {"cuflash/scalar: left out above 0 GFLOP": [case().name()]})

    def test_a_name_is_measured_whatever_the_work(self):
        arguments = ["--scalar-gflop", "0", "--kernels", "scalar,auto"]
        self.assertEqual(self.kernels(arguments, "tiled", ["scalar"])[0], [("tiled", True), ("scalar", False)])

    def test_the_choice_is_not_measured_twice(self):
        self.assertEqual(self.kernels(["--kernels", "auto,tiled"], "tiled", [])[0], [("tiled", True)])

    def test_deterministic_is_one_more_in_the_backward_pass(self):
        arguments = ["--kernels", "auto,deterministic"]
        found, _ = self.kernels(arguments, "tiled", [], case(op="bwd"))
        self.assertEqual(found, [("tiled", True), ("repeating, deterministic", False)])
        self.assertEqual(self.kernels(arguments, "tiled", [], case(op="fwd"))[0], [("tiled", True)])

    def test_a_name_that_no_kernel_has_is_an_error(self):
        err = io.StringIO()
        arguments = ["--set", "grid", "--kernels", "scalar,unheard-of", "--library", str(given.library)]
        with contextlib.redirect_stderr(err):
            self.assertEqual(compare_torch.main(arguments), 1)
        self.assertIn("there is no unheard-of; there are auto,", err.getvalue())


class Ratios(unittest.TestCase):
    """What is printed at the end of a set."""

    def printed(self, rates):
        found = []
        for one, of_case in rates.items():
            for name, rate in of_case.items():
                library = name if name == "flash2" else "cuflash"
                found.append(records.record(one, library, name, [one.flops / rate * 1e-9], 0.0))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            compare_torch.print_ratios(found, "flash2")
        return out.getvalue().splitlines()

    def test_cells_and_means(self):
        forward = [case("fwd", "bf16", head_dim=64, seqlen_q=rows, seqlen_k=rows) for rows in (4096, 8192)]
        backward = case("bwd", "bf16", head_dim=64, seqlen_q=4096, seqlen_k=4096)
        lines = self.printed({
            forward[0]: {"fast": 200.0, "slow": 10.0, "flash2": 100.0},
            forward[1]: {"fast": 50.0, "flash2": 100.0},
            backward: {"fast": 110.0, "flash2": 100.0},
        })  # fmt: skip
        self.assertEqual(len(lines), 4 + 3)
        self.assertRegex(lines[0], r"^fwd bf16 d64 full 1x2x4096 +fast +200 / flash2 +100 = 2\.000$")
        self.assertEqual(lines[4], "fwd fast / flash2: geometric mean 1.000, lowest 0.500, 2 cases")
        self.assertEqual(lines[5], "fwd slow / flash2: geometric mean 0.100, lowest 0.100, 1 cases")
        self.assertEqual(lines[6], "bwd fast / flash2: geometric mean 1.100, lowest 1.100, 1 cases")

    def test_without_the_library_there_is_nothing(self):
        self.assertEqual(self.printed({case(seqlen_q=4096, seqlen_k=4096): {"fast": 1.0}}), [])


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class OutOfMemory(unittest.TestCase):
    """One case too many for the memory does not cost the set."""

    def comparison(self):
        comparison = object.__new__(compare_torch.Comparison)
        comparison.skipped, comparison.prepared = {}, ("kept",) * 3
        return comparison

    def test_of_a_case(self):
        import torch

        comparison = self.comparison()
        comparison.measure_all = mock.Mock(side_effect=torch.cuda.OutOfMemoryError("CUDA out of memory.\nMore"))
        self.assertEqual(comparison.measure(case(), ("cuflash",), None), [])
        self.assertEqual(comparison.skipped, {"all: CUDA out of memory.": [case().name()]})
        self.assertEqual(comparison.prepared, (None, None, None))

    def test_of_a_contestant(self):
        import torch

        comparison = self.comparison()
        comparison.prepare = lambda _: (case(), None, None)
        comparison.library = None
        comparison.cuflash_kernels = lambda *_: [cases.Variant("large", chosen=True), cases.Variant("small")]
        comparison.cuflash_calls = mock.Mock()
        comparison.cuflash_calls.contestant.side_effect = [torch.cuda.OutOfMemoryError("no memory"), "made"]
        self.assertEqual(list(comparison.contestants(case(), ("cuflash",), None)), ["made"])
        self.assertEqual(comparison.skipped, {"cuflash/large: no memory": [case().name()]})


FLASH3_FOLDER = HERE / "peers" / "flash3"
LAYOUT_PROGRAM = """
#include <cuflash/cuflash.h>
#include <flash3.h>
#include <stdio.h>
int main(void) {
%s
  return 0;
}
"""


class Layout(unittest.TestCase):
    STRUCTS = {**library.C_NAMES, "Flash3Problem": flash3_library.Problem}

    def test_sizes_and_offsets_are_those_of_the_headers(self):
        statements = []
        for name, struct in self.STRUCTS.items():
            statements.append(f'printf("{name} %zu\\n", sizeof({name}));')
            for field, _ in struct._fields_:
                statements.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
        with tempfile.TemporaryDirectory() as folder:
            source, program = Path(folder) / "layout.c", Path(folder) / "layout"
            source.write_text(LAYOUT_PROGRAM % "\n".join(statements), encoding="utf-8")
            includes = ["-I", HERE.parent / "include", "-I", FLASH3_FOLDER]
            subprocess.run([given.compiler, *includes, source, "-o", program], check=True)
            printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        expected = {}
        for name, struct in self.STRUCTS.items():
            expected[name] = ctypes.sizeof(struct)
            for field, _ in struct._fields_:
                expected[f"{name}.{field}"] = getattr(struct, field).offset
        self.assertEqual({name: int(value) for name, value in map(str.split, printed.splitlines())}, expected)


# A library of flash3.h that computes nothing: it shows what it was given.
FLASH3_STUB = """
#include <flash3.h>
#include <string.h>
const char *flash3_commit(void) { return "f3c0"; }
const char *flash3_why_not(const Flash3Problem *p) { return p->head_dim == 8 ? 0 : "not built"; }
size_t flash3_workspace_size(const Flash3Problem *p) { return p->backward ? 512 : 256; }
int32_t flash3_run(const Flash3Problem *p, void *stream) {
  memcpy(p->backward ? p->dq : p->o, p, sizeof(*p));
  return (int32_t)(intptr_t)stream;
}
"""


class Flash3(unittest.TestCase):
    """Its loader, with a library that shows what it was given."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.flash3 = flash3_library.Flash3(cls.built("stub", FLASH3_STUB))

    @classmethod
    def built(cls, name, text):
        source, path = cls.folder / f"{name}.c", cls.folder / f"{name}.so"
        source.write_text(text, encoding="utf-8")
        subprocess.run([given.compiler, "-shared", "-fPIC", "-I", FLASH3_FOLDER, source, "-o", path], check=True)
        return path

    def test_a_call_says_what_the_case_is(self):
        one = case("bwd", "bf16", causal=True, batch=3, heads=4, heads_k=2)
        problem, shown = self.flash3.problem(one), flash3_library.Problem()
        problem.dq = ctypes.addressof(shown)
        self.assertEqual(self.flash3.workspace_size(problem), 512)
        self.flash3.run(problem, None)
        numbers = {name: getattr(shown, name) for name in flash3_library.NUMBERS.split()}
        expected = dict(batch=3, heads=4, heads_k=2, seqlen_q=4, seqlen_k=4, head_dim=8)
        self.assertEqual(numbers, {"backward": 1, "bf16": 1, "causal": 1, **expected})

    def test_who_does_not_take_part(self):
        self.assertEqual(self.flash3.why_not(case()), "does not serve fp32")
        self.assertEqual(self.flash3.why_not(case(dtype="fp16", head_dim=64)), "not built")
        self.assertIsNone(self.flash3.why_not(case(dtype="fp16")))

    def test_a_call_that_fails(self):
        problem, shown = self.flash3.problem(case(dtype="fp16")), flash3_library.Problem()
        problem.o = ctypes.addressof(shown)
        with self.assertRaisesRegex(flash3_library.Flash3Error, "cudaError_t 700"):
            self.flash3.run(problem, 700)

    def test_a_library_that_is_another(self):
        with self.assertRaisesRegex(flash3_library.Flash3Error, "another.so: not a library of flash3.h"):
            flash3_library.Flash3(self.built("another", "int nothing;"))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_contestants_have_the_tensors_of_the_others(self):
        from peers import flash3_calls, torch_calls

        comparison = object.__new__(compare_torch.Comparison)
        comparison.flash3, comparison.flash3_calls, comparison.skipped = self.flash3, flash3_calls, {}
        rows = dict(seqlen_q=32, seqlen_k=32)  # room for what the library shows
        for one, names in ((case(dtype="fp16", **rows), ["o"]), (case("bwd", "bf16", **rows), ["dq", "dk", "dv"])):
            inputs = torch_calls.random_inputs(one, "cpu")
            comparison.prepare = lambda _: (None, inputs, None)
            with mock.patch("torch.cuda.current_stream", return_value=mock.Mock(cuda_stream=None)):
                (contestant,) = comparison.contestants(one, ["flash3"], None)
            outputs = contestant.launch()
            self.assertEqual((contestant.library, contestant.more["version"]), ("flash3", "f3c0"))
            self.assertEqual(list(outputs), names)
            shown = flash3_library.Problem.from_address(outputs[names[0]].data_ptr())
            self.assertEqual([shown.q, shown.k, shown.v], [x.data_ptr() for x in inputs[:3]])
            self.assertEqual([getattr(shown, name) for name in names], [x.data_ptr() for x in outputs.values()])
            self.assertEqual(shown.dout, inputs[3].data_ptr() if one.op == "bwd" else None)
            self.assertTrue(shown.o and shown.lse and shown.workspace)
        self.assertEqual(list(comparison.contestants(case(dtype="fp16", head_dim=64), ["flash3"], None)), [])
        self.assertEqual(list(comparison.skipped), ["flash3: not built"])


class HostCalls(unittest.TestCase):
    """The built library, called as compare_torch.py calls it, on host memory."""

    def setUp(self):
        self.library = library.Library(given.library)
        self.memory = []  # held until the test ends

    def array(self, values):
        self.memory.append((ctypes.c_float * len(values))(*values))
        return self.memory[-1]

    def test_params_are_all_defaults(self):
        for operation, struct in library.PARAMS.items():
            params = self.library.init(operation)
            self.assertEqual(params.struct_size, ctypes.sizeof(struct))
            self.assertEqual(bytes(params)[ctypes.sizeof(ctypes.c_size_t) :].strip(b"\0"), b"")
            with self.assertRaisesRegex(library.CuflashError, "INVALID_ARGUMENT"):
                self.library.init(operation, 3)

    def test_kernel_table(self):
        for operation in library.OPERATIONS:
            gpu = {info.name.decode(): info for info in self.library.kernels(operation)}
            host = {info.name.decode() for info in self.library.kernels(operation, library.DEVICE_HOST)}
            self.assertEqual(host, {"host"})
            self.assertEqual(gpu["scalar"].max_head_dim, 256)
            self.assertEqual(gpu["scalar"].dtypes, sum(library.DTYPE_BITS.values()))
            self.assertIn("sm_", gpu["scalar"].architectures.decode())

    def test_choice_in_an_explanation(self):
        params = self.library.problem(case(causal=True), device=library.DEVICE_HOST)
        text = self.library.explain("fwd", params)
        self.assertIn("batch=1 num_heads=2 num_heads_k=2 seqlen_q=4 seqlen_k=4 head_dim=8 head_dim_v=8", text)
        self.assertEqual(library.chosen_kernel(text), "host")
        with self.assertRaises(library.CuflashError):
            library.chosen_kernel("forward fp32\n  scalar           cannot: dtype (fp32) is not served\n")

    def test_a_kernel_that_does_not_exist_is_an_error(self):
        params = self.library.problem(case(), "unheard-of", library.DEVICE_HOST)
        with self.assertRaisesRegex(library.CuflashError, "INVALID_ARGUMENT.*unheard-of"):
            self.library.workspace_size("fwd", params)

    def test_forward_and_backward(self):
        """Equal scores: causal row i of o is the mean of the values 0 .. i, and lse is ln(i + 1)."""
        one = case(causal=True, heads=1, heads_k=1)
        rows, head_dim = one.seqlen_q, one.head_dim
        count = rows * head_dim
        q, k = (self.array([1.0] * count) for _ in range(2))
        v = self.array([i // head_dim for i in range(count)])
        dout = self.array([1.0 if i // head_dim == rows - 1 else 0.0 for i in range(count)])
        o, dq, dk, dv = (self.array([math.nan] * count) for _ in range(4))
        lse = self.array([math.nan] * rows)

        def run(operation, **tensors):
            params = self.library.problem(cases.Case(**{**one.fields(), "op": operation}), "host", library.DEVICE_HOST)
            params.softmax_scale = 1e-30  # all scores are 0, so that lse is that of the row's count
            params.softmax_lse = ctypes.addressof(lse)
            for name, tensor in tensors.items():
                getattr(params, name).data = ctypes.addressof(tensor)
            size = self.library.workspace_size(operation, params)
            workspace = ctypes.create_string_buffer(size + library.WORKSPACE_ALIGNMENT)
            aligned = -(-ctypes.addressof(workspace) // library.WORKSPACE_ALIGNMENT) * library.WORKSPACE_ALIGNMENT
            self.library.run(operation, params, aligned if size else None, size, None)

        run("fwd", q=q, k=k, v=v, o=o)
        for row in range(rows):
            self.assertAlmostEqual(lse[row], math.log(row + 1), places=5)
            for column in range(head_dim):
                self.assertAlmostEqual(o[row * head_dim + column], row / 2, places=5)
        run("bwd", q=q, k=k, v=v, o=o, dout=dout, dq=dq, dk=dk, dv=dv)
        for i in range(count):
            self.assertAlmostEqual(dv[i], 1 / rows, places=5)  # of the one row that has a gradient
            self.assertLess(abs(dq[i]) + abs(dk[i]), 1e-20)


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class TorchComputations(unittest.TestCase):
    PROBLEMS = (
        dict(head_dim=16, batch=2, heads=3, heads_k=3, seqlen_q=33, seqlen_k=33),
        dict(head_dim=16, batch=2, heads=3, heads_k=3, seqlen_q=33, seqlen_k=33, causal=True),
    )
    GROUPED = dict(head_dim=8, batch=2, heads=4, heads_k=2, seqlen_q=20, seqlen_k=20, causal=True)

    def setUp(self):
        import torch
        from peers import references, torch_calls

        self.torch, self.references, self.torch_calls = torch, references, torch_calls

    def autograd(self, inputs, causal):
        """o, dq, dk, dv of PyTorch's own attention in fp64, as a reference's layout."""
        q, k, v, dout = (x.double() for x in inputs)
        leaves = [x.transpose(1, 2).clone().requires_grad_() for x in (q, k, v)]
        o = self.torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=True)
        gradients = self.torch.autograd.grad(o, leaves, dout.transpose(1, 2))
        return {name: x.transpose(1, 2) for name, x in zip(("o", "dq", "dk", "dv"), (o, *gradients))}

    def test_reference_is_what_autograd_computes(self):
        for problem in (*self.PROBLEMS, self.GROUPED):
            one = case(**problem)
            inputs = self.torch_calls.random_inputs(one, "cpu")
            for chunk in (7, 2048):
                with mock.patch.object(self.references, "ROWS_AT_ONCE", chunk):
                    expected = self.references.reference(one, *inputs)
                outputs = self.autograd(inputs, one.causal)
                self.assertLess(self.references.relative_error(expected, outputs), 1e-12)

    def test_error_names_the_worst_output(self):
        one = case(**self.PROBLEMS[0])
        inputs = self.torch_calls.random_inputs(one, "cpu")
        expected = self.references.reference(one, *inputs)
        outputs = {name: x.detach() for name, x in self.autograd(inputs, one.causal).items()}
        outputs["dk"] = outputs["dk"] * 1.01
        self.assertAlmostEqual(self.references.relative_error(expected, outputs), 0.01, places=6)
        outputs["dq"] = outputs["dq"].clone()
        outputs["dq"][0, 0, 0, 0] = math.nan
        self.assertTrue(math.isnan(self.references.relative_error(expected, outputs)))

    def test_naive_computes_attention(self):
        for problem in self.PROBLEMS:
            for op in cases.OPERATIONS:
                one = case(op, **problem)
                inputs = self.torch_calls.random_inputs(one, "cpu")
                contestant = self.torch_calls.contestant("naive", one, inputs, "bhsd")
                outputs = {name: contestant.view(x) for name, x in contestant.launch().items()}
                error = self.references.relative_error(self.references.reference(one, *inputs), outputs)
                self.assertLess(error, 1e-6, one.name())

    def test_operators_take_the_arguments_that_they_are_given(self):
        """On meta tensors, which have a shape and no data: the operators' own shape functions run."""
        for name in ("cudnn", "flash2", "mem_efficient"):
            for op in cases.OPERATIONS:
                for layout in self.torch_calls.LAYOUTS:
                    one = case(op, "bf16", head_dim=64, causal=True, seqlen_q=128, seqlen_k=128)
                    inputs = [x.to("meta") for x in self.torch_calls.random_inputs(one, "cpu")]
                    contestant = self.torch_calls.contestant(name, one, inputs, layout)
                    shapes = {tuple(contestant.view(x).shape) for x in contestant.launch().values()}
                    self.assertEqual(shapes, {(1, 128, 2, 64)}, f"{name} {op} {layout}")

    def test_who_does_not_take_part(self):
        plenty = 1 << 40
        self.assertEqual(self.torch_calls.why_not("cudnn", case(), plenty), "does not serve fp32")
        self.assertIsNone(self.torch_calls.why_not("cudnn", case(dtype="bf16"), plenty))
        self.assertIsNone(self.torch_calls.why_not("flash2", case(dtype="bf16", heads_k=1), plenty))
        self.assertIn("grouped heads", self.torch_calls.why_not("mem_efficient", case(heads_k=1), plenty))
        self.assertIn("score matrices", self.torch_calls.why_not("naive", case(), 100))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--compiler", required=True)
    _, rest = parser.parse_known_args(namespace=given)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
