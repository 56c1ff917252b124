# SPDX-License-Identifier: MIT
"""The scripts that bind a GPU record to the sources, tried in small source trees with made-up GPU programs."""
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

# A GoogleTest program reduced to what the scripts use of it. {status} and {result} are filled in.
TEST_PROGRAM = """#!{python}
import json, sys
report = [a.split("json:")[1] for a in sys.argv if a.startswith("--gtest_output=json:")][0]
failures = [{{"failure": "wrong"}}] if {status} else []
tests = [{{"name": "a", "status": "RUN", "result": "COMPLETED"}},
         {{"name": "b", "status": "RUN", "result": "{result}", "failures": failures}},
         {{"name": "off", "status": "NOTRUN", "result": "SUPPRESSED"}}]
json.dump({{"testsuites": [{{"name": "Grid", "testsuite": tests}}]}}, open(report, "w"))
print("cases: 12")
print("cases: 30")
sys.exit({status})
"""
BENCHMARK_PROGRAM = """#!{python}
import sys
open(sys.argv[sys.argv.index("--out") + 1], "w").write("{{}}")
"""
NVIDIA_SMI = """#!{python}
import sys
if len(sys.argv) > 1:
    print("NVIDIA Test GPU 7, 1.2.3, 9.0, 80 GiB, 700 W, 1980 MHz, 3201 MHz")
else:
    print("| NVIDIA-SMI 1.2.3   Driver Version: 1.2.3   CUDA Version: 13.0 |")
"""
SANITIZER_SCRIPT = """#!/usr/bin/env bash
echo "sanitizer memcheck test_gpu_one: ok, 3 tests, 2 s"
echo "sanitizer racecheck test_gpu_one: $VERDICT, 3 tests, 1 s"
[[ $VERDICT == ok ]]
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
        for name in ("source_digest.py", "gpu_evidence.py", "check_evidence.py", "check_evidence.sh", "lib.sh"):
            shutil.copy(SCRIPTS / name, self.write(f"scripts/{name}", ""))
        self.write_program("scripts/run_compute_sanitizer.sh", SANITIZER_SCRIPT)
        self.build_dir = root / "build-gpu"
        self.write_program("bin/nvidia-smi", NVIDIA_SMI)
        self.write_program("build-gpu/tests/test_gpu_one", TEST_PROGRAM, status=0, result="COMPLETED")
        self.write_program("build-gpu/tests/test_gpu_two", TEST_PROGRAM, status=0, result="SKIPPED")
        self.write_program("build-gpu/benchmarks/cuflash_bench", BENCHMARK_PROGRAM)
        library = self.write("build-gpu/src/libcuflash.c", 'const char* cuflashGetBuildInfo(void) { return "built"; }')
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library.with_suffix(".so"), library], check=True)

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def write_program(self, path, text, **fields):
        if text.startswith("#!{python}"):
            text = text.format(python=sys.executable, **fields)
        self.write(path, text).chmod(0o755)

    def call(self, *command, verdict="ok", check=None):
        env = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "VERDICT": verdict,
               "CUFLASH_COMMIT": "abc"}  # fmt: skip
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
        return json.loads((out / "verification" / "test-gpu-7.json").read_text()), output

    def check_evidence(self, check):
        return self.call(self.root / "scripts" / "check_evidence.sh", check=check)


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
        self.tree.write_program("build-gpu/tests/test_gpu_one", TEST_PROGRAM, status=0, result="OTHER")
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
        self.assertEqual(record["totals"], {"run": 4, "passed": 3, "failed": 0, "skipped": 1, "cases": 84})
        self.assertEqual(record["tests"]["test_gpu_two"]["skips"], ["Grid.b"])
        self.assertEqual(record["tests"]["test_gpu_two"]["level"], 2)
        self.assertEqual([r["tool"] for r in record["sanitizers"]["runs"]], ["memcheck", "racecheck"])
        self.assertTrue((self.tree.root / "docs/performance/test-gpu-7/quick.json").is_file())

    def test_record_of_a_failing_test(self):
        self.tree.write_program("build-gpu/tests/test_gpu_one", TEST_PROGRAM, status=1, result="COMPLETED")
        self.tree.stamp()
        record, _ = self.tree.verify(check=1)
        self.assertFalse(record["pass"])
        self.assertEqual(record["problems"], ["test_gpu_one: status 1, 1 failed"])
        self.assertEqual(record["tests"]["test_gpu_one"]["failures"], ["Grid.b"])
        self.assertIn("did not pass", self.tree.check_evidence(check=1))

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
        self.assertEqual(record["totals"]["run"], 4)

    def test_steps_for_other_sources_do_not_complete_a_record(self):
        self.tree.stamp()
        self.tree.verify("--steps", "tests", check=1)
        self.tree.write("src/a.cpp", "int other;\n")
        self.tree.stamp()
        record, _ = self.tree.verify("--steps", "sanitizers,benchmark", check=1)
        self.assertNotIn("tests", record)

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


if __name__ == "__main__":
    unittest.main()
