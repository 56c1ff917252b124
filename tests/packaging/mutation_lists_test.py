# SPDX-License-Identifier: MIT
"""Every fault of tests/mutations fits the sources that lie here, and a list that does not is noticed."""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["CUFLASH_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "scripts"))
import mutation_check  # noqa: E402
import mutation_faults  # noqa: E402
import source_digest  # noqa: E402


class ListsTest(unittest.TestCase):
    def test_every_fault_fits_the_sources(self):
        self.assertEqual(mutation_faults.problems(SOURCE), [])

    def test_each_room_has_faults_in_both_directions(self):
        for room in mutation_faults.kernel_rooms(SOURCE):
            units = {unit for fault in mutation_faults.load(SOURCE, room) for unit in fault.units}
            for direction in ("fwd", "bwd"):
                self.assertTrue([u for u in units if f"/{direction}" in u], f"{room}: no fault in {direction}")


class StaleListTest(unittest.TestCase):
    """Each kind of stale or wrong list, in a small tree."""

    GOOD = {"name": "f0", "what": "", "file": "src/kernels/mine/a.h", "old": "a", "new": "b"}

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="cuflash-mutations-"))
        self.addCleanup(shutil.rmtree, self.root)
        (self.root / "src/kernels/mine").mkdir(parents=True)
        (self.root / "tests/mutations").mkdir(parents=True)
        (self.root / "src/kernels/mine/a.h").write_text("a c c")

    def problems(self, **changed):
        rows = [{**self.GOOD, "name": f"f{i}"} for i in range(mutation_faults.MIN_FAULTS)]
        rows[0] = {**rows[0], **changed}
        self.write(rows)
        return mutation_faults.problems(self.root)

    def write(self, rows):
        text = f"UNITS = ['u']\nTESTS = [('test_host_x', '*', 0)]\nFAULTS = {rows!r}\n"
        (self.root / "tests/mutations/mine.py").write_text(text)

    def test_a_good_list(self):
        self.assertEqual(self.problems(), [])

    def test_wrong_lists_are_named(self):
        for changed, sentence in (
            ({"old": "x"}, "is in src/kernels/mine/a.h 0 times"),
            ({"old": "c"}, "is in src/kernels/mine/a.h 2 times"),
            ({"new": "a"}, "changes nothing"),
            ({"file": "src/gone.h"}, "there is no src/gone.h"),
            ({"name": "f1"}, "is there twice"),
            ({"test": []}, "missing or unknown: test"),
        ):
            with self.subTest(sentence):
                self.assertIn(sentence, "\n".join(self.problems(**changed)))

    def test_too_few_faults(self):
        self.write([self.GOOD])
        self.assertIn("1 faults, fewer than 10", "\n".join(mutation_faults.problems(self.root)))

    def test_a_room_without_a_list(self):
        self.assertIn("has no tests/mutations/mine.py", "\n".join(mutation_faults.problems(self.root)))

    def test_lists_import_common_of_their_own_tree(self):
        folder = self.root / "tests/mutations"
        self.write([self.GOOD])
        text = (folder / "mine.py").read_text().replace("['u']", "SHARED")
        (folder / "mine.py").write_text("from common import SHARED\n" + text)
        for shared in ("v", "other"):
            (folder / "common.py").write_text(f"SHARED = [{shared!r}]\n")
            self.assertEqual(mutation_faults.load(self.root, "mine")[0].units, (shared,))
        (folder / "common.py").write_text("")
        self.assertIn("cannot import name 'SHARED'", "\n".join(mutation_faults.problems(self.root)))

    def test_planting_leaves_the_original(self):
        self.write([self.GOOD])
        copy = self.root / "copy/src/kernels/mine"
        copy.mkdir(parents=True)
        os.link(self.root / "src/kernels/mine/a.h", copy / "a.h")
        mutation_faults.plant(self.root, mutation_faults.load(self.root, "mine")[0], self.root / "copy")
        self.assertEqual((copy / "a.h").read_text(), "b c c")
        self.assertEqual((self.root / "src/kernels/mine/a.h").read_text(), "a c c")


class VerdictTest(unittest.TestCase):
    """Only a test that ran and noticed something counts."""

    BEGUN = "[ RUN      ] A.B\n"

    def test_verdicts(self):
        for status, output, verdict in (
            (0, self.BEGUN, "passed"),
            (0, "Running 0 tests\n", mutation_check.NOT_RUN),
            (1, self.BEGUN + "[  FAILED  ] A.B (1 ms)\n", "failed"),
            (-11, self.BEGUN, "crashed"),
            (-11, "", mutation_check.NOT_RUN),
            (77, "SKIPPED: no GPU\n", mutation_check.NOT_RUN),
            (127, "error while loading shared libraries\n", mutation_check.NOT_RUN),
        ):
            with self.subTest(status=status, output=output):
                self.assertEqual(mutation_check.verdict_of(status, output), verdict)

    def test_the_test_is_named(self):
        output = "[ RUN      ] A.B\n[       OK ] A.B\n[ RUN      ] A.C/0\n[  FAILED  ] A.C/0, where x\n"
        self.assertEqual(mutation_check.test_name("p", output, "failed"), "p A.C/0")
        self.assertEqual(mutation_check.test_name("p", "[ RUN      ] A.B\n", "crashed"), "p A.B")

    def test_survivors_and_gaps_are_problems(self):
        caught, survived = {"verdict": "failed"}, {"verdict": "survived"}
        for mutants, wanted, known, problems in (
            ({"r/a": caught}, ["r/a"], ["r/a"], []),
            ({"r/a": caught, "r/b": caught}, ["r/a"], ["r/a", "r/b"], []),
            ({"r/a": survived}, ["r/a"], ["r/a"], ["r/a: survived"]),
            ({}, ["r/a"], ["r/a"], ["r/a: was not run"]),
            ({"r/a": caught}, [], [], ["r/a: is in no list"]),
        ):
            with self.subTest(mutants=mutants):
                self.assertEqual(mutation_check.problems_of(mutants, wanted, known), problems)


class RunTest(unittest.TestCase):
    """How a program is called: on a GPU under the tool that the test names, on the emulated device with a seed."""

    PROGRAM = """#!/bin/sh
echo "[ RUN      ] A.B"
echo "kernels $CUFLASH_EMULATOR_KERNELS"
echo "seed $CUFLASH_EMULATOR_SEED level $CUFLASH_TEST_LEVEL under ${TOOL:-nothing}, libraries of $LD_LIBRARY_PATH"
[ "$CUFLASH_EMULATOR_SEED" != 3 ] || { echo "[  FAILED  ] A.B (1 ms)"; exit 1; }
"""
    SANITIZER = """#!/bin/sh
while [ "${1#/}" = "$1" ]; do shift; done
TOOL=racecheck exec "$@"
"""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="cuflash-run-")
        self.addCleanup(holder.cleanup)
        self.ready = pathlib.Path(holder.name)
        (self.ready / "programs").mkdir()
        self.write("programs/test_gpu_x", self.PROGRAM)
        os.environ["CUFLASH_COMPUTE_SANITIZER"] = str(self.write("sanitizer", self.SANITIZER))
        self.addCleanup(os.environ.pop, "CUFLASH_COMPUTE_SANITIZER")

    def write(self, name, text):
        path = self.ready / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run_test(self, *arguments):
        return mutation_check.run_test(self.ready, self.ready / "room/fault", *arguments)

    def test_on_a_gpu(self):
        verdict, name, output = self.run_test(("test_gpu_x", "*", 1, "racecheck"))
        self.assertEqual((verdict, name), ("passed", "test_gpu_x A.B under racecheck"))
        self.assertIn("level 1 under racecheck, libraries of " + str(self.ready / "room/fault"), output)

    def test_on_the_emulated_device(self):
        verdict, name, output = self.run_test(("test_gpu_x", "*", 0, "racecheck"), mutation_check.Emulation("mine", 2))
        self.assertEqual((verdict, name), ("passed", "test_gpu_x A.B"))
        self.assertIn("seed 2 level 0 under nothing", output)
        self.assertIn("kernels mine,register_tiled", output)

    def test_a_failure_on_the_emulated_device(self):
        verdict, name, _ = self.run_test(("test_gpu_x", "*", 0), mutation_check.Emulation("mine", 3))
        self.assertEqual((verdict, name), ("failed", "test_gpu_x A.B"))

    def test_what_must_pass_without_a_fault(self):
        entry = {"test": ["test_gpu_x", "*", 1, "racecheck"], "by": "test_gpu_x A.B/0 under racecheck"}
        self.assertEqual(mutation_check.noticed_by(entry), ("test_gpu_x", "A.B/0", 1, "racecheck"))
        entry = {"test": ["test_gpu_x", "*", 0], "by": "test_gpu_x under memcheck"}
        self.assertEqual(mutation_check.noticed_by(entry), ("test_gpu_x", "*", 0))


class RecordTest(unittest.TestCase):
    """A record counts for the sources that it names, and only if all faults of the lists were caught."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="cuflash-record-")
        self.addCleanup(holder.cleanup)
        self.path = pathlib.Path(holder.name) / "gpu.json"
        self.files = {"a": "1"}
        self.faults = [fault for fault in mutation_faults.load(SOURCE, "scalar") if fault.needs_gpu]
        self.record = {
            "schema": mutation_check.SCHEMA, "problems": [], "files": self.files,
            "digest": source_digest.digest(self.files), "mutants": {f.id: {"verdict": "failed"} for f in self.faults},
        }  # fmt: skip

    def problems(self, **changed):
        self.path.write_text(json.dumps({**self.record, **changed}))
        return "\n".join(mutation_check.record_problems(self.path, self.files, self.faults))

    def test_a_good_record(self):
        self.assertEqual(self.problems(), "")

    def test_faults_that_the_emulated_device_cannot_run(self):
        left = {**self.record["mutants"], self.faults[0].id: {"verdict": mutation_check.NEEDS_GPU}}
        self.assertEqual(self.problems(mutants=left, emulated=True), "")
        self.assertEqual(mutation_check.only_on_gpu(self.path), [self.faults[0].id])
        self.assertIn(mutation_check.NEEDS_GPU, self.problems(mutants=left))

    def test_which_faults_those_are(self):
        left = {fault.id for fault in mutation_check.selected_faults(["wmma"]) if not mutation_check.is_emulated(fault)}
        self.assertEqual(left, {"wmma/bf16_matrix_not_transposed"})

    def test_bad_records(self):
        self.assertIn("schema 0", self.problems(schema=0))
        self.assertIn("was not run", self.problems(mutants={}))
        self.assertIn("survived", self.problems(problems=["x: survived"]))
        self.assertIn("its digest is not", self.problems(digest="0"))
        self.assertIn("a: changed since", self.problems(files={"a": "2"}))
        self.path.write_text("{")
        self.assertIn("is not a record", mutation_check.record_problems(self.path, self.files, self.faults)[0])


if __name__ == "__main__":
    unittest.main()
