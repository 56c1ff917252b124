# SPDX-License-Identifier: MIT
"""The scripts that bind a GPU record to the sources, tried in small source trees with made-up GPU programs."""
import copy
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(os.environ["CUFLASH_SOURCE_DIR"]) / "scripts"
sys.path.insert(0, str(SCRIPTS))
import check_evidence  # noqa: E402
import source_digest  # noqa: E402

SANITIZER_TOOLS = ["memcheck", "initcheck", "synccheck", "racecheck"]
# Set by a shell, these would change what the programs do.
STEERING = {
    "BENCHMARK_FILTER": "none", "CUFLASH_KERNEL": "host_fwd", "CUFLASH_TEST_LEVEL": "0", "GTEST_FILTER": "-*",
    "GTEST_SHARD_INDEX": "1", "GTEST_TOTAL_SHARDS": "9", "TESTBRIDGE_TEST_ONLY": "none",
}  # fmt: skip

# A GoogleTest program reduced to what the scripts use of it. {status}, {result} and {ran} are filled in. What it finds
# in its environment, it appends to the file ENVIRONMENT_LOG.
NOTE_ENVIRONMENT = """
import os
with open(os.environ["ENVIRONMENT_LOG"], "a") as file:
    names = [n for n in os.environ if n.split("_")[0] in ("BENCHMARK", "CUFLASH", "GTEST", "TESTBRIDGE")]
    print("{who}", *(f"{{n}}={{os.environ[n]}}" for n in sorted(names)), file=file)
"""
TEST_PROGRAM = "#!/usr/bin/env python3" + NOTE_ENVIRONMENT.replace("{who}", "test") + """
import json, sys
report = [a.split("json:")[1] for a in sys.argv if a.startswith("--gtest_output=json:")]
if not report:
    print("Sanitizer.\\n  Small" if "--gtest_list_tests" in sys.argv else "[  PASSED  ] 3 tests.")
    sys.exit({status})
failures = [{{"failure": "wrong"}}] if {status} else []
tests = [{{"name": "a", "status": "RUN", "result": "COMPLETED"}},
         {{"name": "b", "status": "RUN", "result": "{result}", "failures": failures}},
         {{"name": "c", "status": "{ran}", "result": "COMPLETED"}}]
json.dump({{"testsuites": [{{"name": "Grid", "testsuite": tests}}]}}, open(report[0], "w"))
print("cases: 12")
print("cases: 30")
sys.exit({status})
"""
GOOD = {"status": 0, "result": "COMPLETED", "ran": "RUN"}
BENCHMARK_PROGRAM = "#!/usr/bin/env python3" + NOTE_ENVIRONMENT.replace("{who}", "benchmark") + """
import sys
open(sys.argv[sys.argv.index("--out") + 1], "w").write("{{}}")
"""
NVIDIA_SMI = """#!/usr/bin/env python3
import sys
if len(sys.argv) > 1:
    print("NVIDIA Test GPU 7, 1.2.3, 9.0, 80 GiB, 700 W, 1980 MHz, 3201 MHz")
else:
    print("| NVIDIA-SMI 1.2.3   Driver Version: 1.2.3   CUDA Version: 13.0 |")
"""
# Takes the place of run_compute_sanitizer.sh.
SANITIZER_SCRIPT = "#!/usr/bin/env python3" + NOTE_ENVIRONMENT.replace("{who}", "sanitizers") + """
import os, sys
for i, tool in enumerate(sys.argv):
    if sys.argv[i - 1] == "--tool":
        verdict = os.environ["VERDICT"] if tool == "racecheck" else "ok"
        print(f"sanitizer {{tool}} test_gpu_one: {{verdict}}, 3 tests, 2 s")
sys.exit(os.environ["VERDICT"] != "ok")
"""
# Takes the place of compute-sanitizer: runs the program.
COMPUTE_SANITIZER = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do shift 2; done # --tool NAME and others
exec "$@"
"""


class Tree:
    """A source tree with the real scripts and a build folder of stand-ins for the programs."""

    def __init__(self, root):
        self.root = root
        for path, text in {
            "CMakeLists.txt": "project(x)\n", "include/x.h": "int x;\n", "src/a.cpp": "int a;\n", "src/b.cpp": "int b;\n",
            "tests/t.cpp": "int t;\n", "tests/packaging/p.py": "p = 1\n", "src/kernels/README.md": "fast\n",
        }.items():  # fmt: skip
            self.write(path, text)
        for name in (
            "check_evidence.py", "check_evidence.sh", "evidence_record.py", "gpu_evidence.py", "lib.sh",
            "source_digest.py",
        ):  # fmt: skip
            shutil.copy(SCRIPTS / name, self.write(f"scripts/{name}", ""))
        self.write_program("scripts/run_compute_sanitizer.sh", SANITIZER_SCRIPT)
        self.build_dir = root / "build-gpu"
        self.record_path = root / "docs/verification/test-gpu-7.json"
        self.environment_log = root / "environment.log"
        self.write_program("bin/nvidia-smi", NVIDIA_SMI)
        self.write_program("build-gpu/tests/test_gpu_one", TEST_PROGRAM, **GOOD)
        self.write_program("build-gpu/tests/test_gpu_two", TEST_PROGRAM, **GOOD)
        self.write_program("build-gpu/benchmarks/cuflash_bench", BENCHMARK_PROGRAM)
        library = self.write("build-gpu/src/libcuflash.c", 'const char* cuflashGetBuildInfo(void) { return "built"; }')
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library.with_suffix(".so"), library], check=True)

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def write_program(self, path, text, **fields):
        if text.startswith("#!/usr/bin/env python3"):
            text = text.format(**fields)
        self.write(path, text).chmod(0o755)

    def call(self, *command, verdict="ok", check=None, **environment):
        env = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "VERDICT": verdict,
               "CUFLASH_COMMIT": "abc", "ENVIRONMENT_LOG": str(self.environment_log), **environment}  # fmt: skip
        result = subprocess.run(
            [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
        )
        if check is not None and result.returncode != check:
            raise AssertionError(f"{command}: status {result.returncode}\n{result.stdout}")
        return result.stdout

    def python(self, script, *arguments, **options):
        return self.call(sys.executable, "-B", self.root / "scripts" / script, *arguments, **options)

    def digest(self):
        return self.python("source_digest.py", check=0).strip()

    def stamp(self):
        self.python("gpu_evidence.py", "stamp", "--build-dir", self.build_dir, "--expect", self.digest(), check=0)

    def verify(self, *arguments, **options):
        out = self.root / "docs"
        output = self.python("gpu_evidence.py", "run", "--build-dir", self.build_dir, "--out", out,
                             "--log", self.root / "build-gpu/verify.log", *arguments, **options)  # fmt: skip
        return json.loads(self.record_path.read_text()), output

    def check_evidence(self, check):
        return self.call(self.root / "scripts" / "check_evidence.sh", check=check)

    def good_record(self):
        self.stamp()
        return self.verify(check=0)[0]

    def check_record(self, record):
        """What the check says about this record."""
        path = self.write("edited.json", json.dumps(record))
        return check_evidence.check_record(path, source_digest.file_hashes(self.root))


def edited(record, edit):
    record = copy.deepcopy(record)
    edit(record)
    return record


class EvidenceTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="cuflash-evidence-")
        self.addCleanup(holder.cleanup)
        self.tree = Tree(pathlib.Path(holder.name))

    # ---- The digest ------------------------------------------------------------------------------------------------

    def test_digest_depends_on_content_and_names(self):
        seen = {self.tree.digest()}
        for path, text in (("src/a.cpp", "int A;\n"), ("src/new.cpp", "int a;\n"), ("tests/t.cpp", ""), ("include/x.h", "")):
            self.tree.write(path, text)
            seen.add(self.tree.digest())
        (self.tree.root / "src/b.cpp").rename(self.tree.root / "src/c.cpp")
        seen.add(self.tree.digest())
        (self.tree.root / "src/c.cpp").unlink()
        seen.add(self.tree.digest())
        self.assertEqual(len(seen), 7)

    def test_digest_leaves_out_results_and_caches(self):
        before = self.tree.digest()
        for path in ("src/kernels/README.md", "tests/packaging/p.py", "scripts/__pycache__/x.pyc", "docs/x.md", "build/x"):
            self.tree.write(path, "other\n")
        self.assertEqual(self.tree.digest(), before)

    def test_digest_leaves_out_no_other_folder_of_that_name(self):
        seen = {self.tree.digest()}
        for path in ("src/packaging/a.cpp", "tests/gpu/packaging/t.cpp", "tests/packaging.cpp"):
            self.tree.write(path, "int x;\n")
            seen.add(self.tree.digest())
        self.assertEqual(len(seen), 4)

    def test_digest_covers_what_judges_a_record(self):
        self.assertIn("  scripts/evidence_record.py\n", self.tree.python("source_digest.py", "--files"))

    def test_digest_is_sha256_of_the_file_list(self):
        listing = self.tree.python("source_digest.py", "--files")
        self.assertIn(f"{hashlib.sha256(b'int a;' + bytes([10])).hexdigest()}  src/a.cpp\n", listing)
        self.assertEqual(hashlib.sha256(listing.encode()).hexdigest(), self.tree.digest())

    # ---- The build record ------------------------------------------------------------------------------------------

    def test_stamp_refuses_sources_that_changed_during_the_build(self):
        before = self.tree.digest()
        self.tree.write("src/a.cpp", "int other;\n")
        output = self.tree.python(
            "gpu_evidence.py", "stamp", "--build-dir", self.tree.build_dir, "--expect", before, check=1
        )
        self.assertIn("changed during the build", output)
        self.assertFalse((self.tree.build_dir / "build_record.json").exists())

    def test_run_refuses_a_build_without_stamp(self):
        record, _ = self.tree.verify(check=1)
        self.assertFalse(record["pass"])
        self.assertIn("build_record.json is missing", record["problems"][0])

    def test_run_refuses_a_build_of_other_sources(self):
        self.tree.stamp()
        self.tree.write("src/a.cpp", "int other;\n")
        record, _ = self.tree.verify(check=1)
        self.assertIn("built from other sources", record["problems"][0])
        self.assertNotIn("tests", record)

    def test_run_refuses_a_program_that_changed_after_the_build(self):
        self.tree.stamp()
        self.tree.write_program("build-gpu/tests/test_gpu_one", TEST_PROGRAM, **{**GOOD, "result": "OTHER"})
        record, _ = self.tree.verify(check=1)
        self.assertEqual(record["problems"], ["tests/test_gpu_one in the build folder is not what the recorded build made"])

    # ---- The record ------------------------------------------------------------------------------------------------

    def test_record_of_a_good_run(self):
        self.tree.stamp()
        record, _ = self.tree.verify("--level", "2", check=0)
        self.assertTrue(record["pass"], record["problems"])
        self.assertEqual(record["digest"], self.tree.digest())
        self.assertEqual(record["gpu"]["name"], "NVIDIA Test GPU 7")
        self.assertEqual((record["library"], record["commit"], record["cuda_of_driver"]), ("built", "abc", "13.0"))
        self.assertEqual(record["totals"], {"run": 6, "passed": 6, "failed": 0, "skipped": 0, "not_run": 0,
                                            "cases": 84})  # fmt: skip
        self.assertEqual(record["tests"]["test_gpu_two"]["level"], 2)
        self.assertEqual([r["tool"] for r in record["sanitizers"]["runs"]], SANITIZER_TOOLS)
        self.assertTrue((self.tree.root / "docs/performance/test-gpu-7/quick.json").is_file())

    def test_record_of_a_failing_test(self):
        self.tree.write_program("build-gpu/tests/test_gpu_one", TEST_PROGRAM, **{**GOOD, "status": 1})
        self.tree.stamp()
        record, _ = self.tree.verify(check=1)
        self.assertFalse(record["pass"])
        self.assertEqual(record["problems"], ["test_gpu_one: status 1, 1 failed"])
        self.assertEqual(record["tests"]["test_gpu_one"]["failures"], ["Grid.b"])
        self.assertIn("did not pass", self.tree.check_evidence(check=1))

    def test_record_of_a_skipped_test(self):
        self.tree.write_program("build-gpu/tests/test_gpu_one", TEST_PROGRAM, **{**GOOD, "result": "SKIPPED"})
        self.tree.stamp()
        record, _ = self.tree.verify(check=1)
        self.assertEqual(record["problems"], ["test_gpu_one: 1 skipped: Grid.b"])
        self.assertIn("1 skipped: Grid.b", self.tree.check_evidence(check=1))

    def test_record_of_a_test_that_did_not_run(self):
        self.tree.write_program("build-gpu/tests/test_gpu_one", TEST_PROGRAM, **{**GOOD, "ran": "NOTRUN"})
        self.tree.stamp()
        record, _ = self.tree.verify(check=1)
        self.assertEqual(record["problems"], ["test_gpu_one: 1 not run: Grid.c"])
        self.assertEqual(record["tests"]["test_gpu_one"]["run"], 2)

    def test_record_of_level_0(self):
        self.tree.stamp()
        record, _ = self.tree.verify("--level", "0", check=1)
        self.assertEqual(record["problems"], [f"test_gpu_{n}: level 0 is less than 1" for n in ("one", "two")])

    def test_record_of_a_program_that_dies(self):
        self.tree.write_program("build-gpu/tests/test_gpu_one", "#!/bin/sh\nkill -SEGV $$\n")
        self.tree.stamp()
        record, _ = self.tree.verify(check=1)
        self.assertEqual(record["problems"], ["test_gpu_one: status -11, 0 failed"])

    def test_record_of_a_sanitizer_finding(self):
        self.tree.stamp()
        record, _ = self.tree.verify(verdict="FAILED", check=1)
        self.assertEqual(record["problems"], ["sanitizers: racecheck test_gpu_one"])

    def test_steps_in_separate_calls_complete_one_record(self):
        self.tree.stamp()
        record, _ = self.tree.verify("--steps", "tests", "--program", "test_gpu_one", check=1)
        self.assertEqual(
            record["problems"],
            ["test_gpu_two: was not run", "sanitizers: were not run", "benchmark: was not run"],
        )
        self.tree.verify("--steps", "tests", "--program", "test_gpu_two", check=1)
        record, _ = self.tree.verify("--steps", "sanitizers,benchmark", check=0)
        self.assertTrue(record["pass"])
        self.assertEqual(record["totals"]["run"], 6)

    def test_calls_side_by_side_complete_one_record(self):
        self.tree.stamp()
        beside = ["--out", str(self.tree.root / "beside")]
        self.tree.verify("--steps", "tests,sanitizers", "--program", "test_gpu_two", check=1)
        self.tree.verify("--steps", "tests", "--program", "test_gpu_one", *beside, check=1)
        self.tree.verify("--steps", "benchmark", *beside, check=0)
        record = json.loads((self.tree.root / "beside/verification/test-gpu-7.json").read_text())
        self.assertTrue(record["pass"], record["problems"])
        self.assertEqual(record["totals"]["run"], 6)

    def test_steps_for_other_sources_do_not_complete_a_record(self):
        self.tree.stamp()
        self.tree.verify("--steps", "tests", check=1)
        self.tree.write("src/a.cpp", "int other;\n")
        self.tree.stamp()
        record, _ = self.tree.verify("--steps", "sanitizers,benchmark", check=1)
        self.assertNotIn("tests", record)

    def test_a_malformed_earlier_record_is_replaced(self):
        self.tree.stamp()
        self.tree.write(self.tree.record_path.relative_to(self.tree.root), "[1]")
        record, output = self.tree.verify(check=0)
        self.assertTrue(record["pass"])
        self.assertIn("not completing", output)

    # ---- The environment -------------------------------------------------------------------------------------------

    def test_steering_variables_do_not_reach_the_programs(self):
        self.tree.stamp()
        self.tree.verify("--level", "2", check=0, CUFLASH_COMPUTE_SANITIZER="/x", **STEERING)
        self.assertEqual(
            self.tree.environment_log.read_text().splitlines(),
            ["test CUFLASH_TEST_LEVEL=2"] * 2 + ["sanitizers CUFLASH_COMPUTE_SANITIZER=/x", "benchmark"],
        )

    def run_sanitizer_script(self, **options):
        shutil.copy(SCRIPTS / "run_compute_sanitizer.sh", self.tree.root / "scripts")
        self.tree.write_program("bin/own-sanitizer", COMPUTE_SANITIZER)
        return self.tree.call(
            self.tree.root / "scripts/run_compute_sanitizer.sh",
            CUFLASH_COMPUTE_SANITIZER=str(self.tree.root / "bin/own-sanitizer"),
            **options,
        )

    def test_steering_variables_do_not_reach_the_programs_of_the_sanitizer_script(self):
        output = self.run_sanitizer_script(check=0, **STEERING)
        for program in ("test_gpu_one", "test_gpu_two"):
            for tool in SANITIZER_TOOLS:
                self.assertIn(f"sanitizer {tool} {program}: ok, 3 tests", output)
        # Two programs, each listed once and run under each tool.
        self.assertEqual(self.tree.environment_log.read_text().splitlines(), ["test CUFLASH_TEST_LEVEL=1"] * 10)

    def test_sanitizer_script_fails_for_a_program_that_cannot_start(self):
        self.tree.write_program("build-gpu/tests/test_gpu_two", "#!/bin/sh\nexit 127\n")
        self.assertIn("test_gpu_two cannot list its tests", self.run_sanitizer_script(check=2))

    # ---- The check -------------------------------------------------------------------------------------------------

    def test_check_passes_for_the_same_sources(self):
        self.tree.stamp()
        self.tree.verify(check=0)
        self.assertIn("docs/verification/test-gpu-7.json: ok", self.tree.check_evidence(check=0))

    def test_check_names_the_files_that_differ(self):
        self.tree.stamp()
        self.tree.verify(check=0)
        self.tree.write("src/a.cpp", "int other;\n")
        self.tree.write("tests/new.cpp", "")
        (self.tree.root / "src/b.cpp").unlink()
        output = self.tree.check_evidence(check=1)
        for line in ("src/a.cpp: changed since", "tests/new.cpp: added since", "src/b.cpp: removed since"):
            self.assertIn(line, output)
        self.assertNotIn("include/x.h", output)

    def test_check_fails_without_a_record(self):
        self.assertIn("no record in docs/verification", self.tree.check_evidence(check=1))

    def test_check_sees_a_record_edited_by_hand(self):
        self.tree.stamp()
        self.tree.verify(check=0)
        self.tree.write("src/a.cpp", "int other;\n")
        path = self.tree.root / "docs/verification/test-gpu-7.json"
        record = json.loads(path.read_text())
        record["files"]["src/a.cpp"] = hashlib.sha256(b"int other;\n").hexdigest()
        path.write_text(json.dumps(record))
        self.assertIn("its digest is not that of its own list", self.tree.check_evidence(check=1))

    def test_check_does_not_believe_what_a_record_says_of_itself(self):
        record = self.tree.good_record()
        for step in ("tests", "sanitizers", "benchmark"):
            del record[step]
        record["totals"] = dict.fromkeys(record["totals"], 0)
        self.tree.write(self.tree.record_path.relative_to(self.tree.root), json.dumps(record))
        output = self.tree.check_evidence(check=1)
        for sentence in ("test_gpu_one: was not run", "sanitizers: were not run", "benchmark: was not run"):
            self.assertIn(sentence, output)

    def test_check_recomputes_every_problem(self):
        one = "test_gpu_one"

        def runs(record):
            return record["sanitizers"]["runs"]

        edits = {
            "did not pass": lambda r: r.update({"pass": False}),
            "disk was full": lambda r: r["problems"].append("disk was full"),
            "its totals are not the sums of its tests": lambda r: r["totals"].update(cases=1),
            "there are no test programs": lambda r: r.update(binaries={}),
            f"{one}: was not run": lambda r: r["tests"].pop(one),
            "test_gpu_three: is not in the build": lambda r: r["tests"].update(test_gpu_three=r["tests"][one]),
            f"{one}: status 3, 0 failed": lambda r: r["tests"][one].update(status=3),
            f"{one}: status 0, 1 failed": lambda r: r["tests"][one].update(failed=1),
            f"{one}: no test passed": lambda r: r["tests"][one].update(passed=0),
            f"{one}: 1 skipped: A.b": lambda r: r["tests"][one].update(skipped=1, skips=["A.b"]),
            f"{one}: 1 not run: A.b": lambda r: r["tests"][one].update(not_run=1, disabled=["A.b"]),
            f"{one}: level 0 is less than 1": lambda r: r["tests"][one].update(level=0),
            f"{one}: its counts do not add up": lambda r: r["tests"][one].update(passed=2),
            "sanitizers: were not run": lambda r: r["sanitizers"].update(runs=[]),
            "sanitizers: memcheck test_gpu_one": lambda r: runs(r)[0].update(ok=False),
            "sanitizers: initcheck test_gpu_one": lambda r: runs(r)[1].update(tests=0),
            "sanitizers: status 1": lambda r: r["sanitizers"].update(status=1),
            "sanitizers: other is not in the build": lambda r: runs(r).append({**runs(r)[0], "program": "other"}),
            "sanitizers: test_gpu_one ran under memcheck, initcheck, synccheck, not once under each of memcheck, "
            "initcheck, synccheck, racecheck": lambda r: runs(r).pop(),
            "benchmark: status 2": lambda r: r["benchmark"].update(status=2),
            "benchmark: wrote no file": lambda r: r["benchmark"].update(file=None),
        }  # fmt: skip
        good = self.tree.good_record()
        self.assertEqual(self.tree.check_record(good), [])
        for sentence, edit in edits.items():
            with self.subTest(sentence):
                self.assertIn(sentence, self.tree.check_record(edited(good, edit)))

    def test_check_names_what_is_malformed_in_one_line(self):
        def one(record):
            return record["tests"]["test_gpu_one"]

        edits = {
            "the record has no 'schema'": lambda r: r.pop("schema"),
            "the record has no 'problems'": lambda r: r.pop("problems"),
            "schema 99 is not 1": lambda r: r.update(schema=99),
            "the record.schema is not of type int": lambda r: r.update(schema=True),
            "the record.pass is not of type bool": lambda r: r.update({"pass": 1}),
            "the record.problems is not a list": lambda r: r.update(problems="none"),
            "the record.files is not an object": lambda r: r.update(files=["src/a.cpp"]),
            "the record.files.src/a.cpp is not of type str": lambda r: r["files"].update({"src/a.cpp": 1}),
            "the record.tests is not an object": lambda r: r.update(tests=None),
            "the record.tests.test_gpu_one is not an object": lambda r: r["tests"].update(test_gpu_one=[]),
            "the record.tests.test_gpu_one has no 'failed'": lambda r: one(r).pop("failed"),
            "the record.tests.test_gpu_one.level is not of type int": lambda r: one(r).update(level="1"),
            "the record.sanitizers.runs[1] is not an object": lambda r: r["sanitizers"]["runs"].insert(1, "ok"),
            "the record.benchmark.file is not of type str": lambda r: r["benchmark"].update(file=3),
        }  # fmt: skip
        good = self.tree.good_record()
        malformed = {sentence: edited(good, edit) for sentence, edit in edits.items()}
        malformed["the record is not an object"] = [good]
        for sentence, record in malformed.items():
            with self.subTest(sentence):
                self.assertEqual(self.tree.check_record(record), [f"is not a record of verify_gpu.sh: {sentence}"])

    def test_check_of_a_file_that_is_no_json(self):
        for text in ("", "{", "[" * 100_000, "\ufeff{}"):
            self.tree.write(self.tree.record_path.relative_to(self.tree.root), text)
            output = self.tree.check_evidence(check=1)
            self.assertIn("is not a record of verify_gpu.sh: cannot be read", output)
            self.assertNotIn("Traceback", output)


if __name__ == "__main__":
    unittest.main()
