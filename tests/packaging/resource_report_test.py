# SPDX-License-Identifier: MIT
"""scripts/resource_report.py reads ptxas' output and notices each way in which a build exceeds the table."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(os.environ["CUFLASH_SOURCE_DIR"]) / "scripts" / "resource_report.py"
KERNEL = "_ZN7cuflash6scalar10fwd_kernelIfLi32EEEvNS_7FwdArgsE"
LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{kernel}' for '{arch}'
ptxas info    : Function properties for _Z6calleev
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for {kernel}
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, {shared} bytes smem, 360 bytes cmem[0]
"""


class ResourceReportTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="cuflash-resources-")
        self.addCleanup(holder.cleanup)
        self.build = pathlib.Path(holder.name)
        self.table = self.build / "resources.txt"
        (self.build / "src").mkdir()
        entry = {"directory": str(self.build), "file": "/x/fwd.cu", "command": "nvcc -c /x/fwd.cu -o src/fwd.cu.o"}
        (self.build / "compile_commands.json").write_text(json.dumps([entry]))
        self.write()
        self.assertEqual(self.report("--update")[0], 0)

    def write(self, more="", **changed):
        fields = dict(kernel=KERNEL, arch="sm_90", stack=16, stores=4, loads=8, registers=40, shared=128)
        (self.build / "src" / "fwd.cu.o.ptxas").write_text(LOG.format(**{**fields, **changed}) + more)

    def report(self, *options, toolkit="13.0.88"):
        command = [sys.executable, SCRIPT, "--build-dir", self.build, "--table", self.table, "--toolkit", toolkit]
        result = subprocess.run([*command, *options], capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr

    def test_the_table(self):
        row = self.table.read_text().splitlines()[-1]
        self.assertEqual(
            [cell.strip() for cell in row.split("|")],
            ["scalar::fwd_kernel<float, 32>", "sm_90", "40", "128", "16", "4", "8"],
        )
        self.assertEqual(self.report(), (0, "1 kernels, 0 problems\n"))

    def test_names_are_whole(self):
        """Also where a template argument has parentheses, and where there is no template."""
        for mangled, name in (
            ("_ZN7cuflash4room10bwd_kernelILi3ELNS0_4SideE1EEEvNS_7BwdArgsE", "room::bwd_kernel<3, (room::Side)1>"),
            ("_ZN7cuflash4room6finishENS_7BwdArgsEPKf", "room::finish"),
        ):
            with self.subTest(name):
                self.write(kernel=mangled)
                self.assertEqual(self.report("--update")[0], 0)
                self.assertIn(f"{name} | sm_90", re.sub(" +", " ", self.table.read_text()))

    def test_growth_is_a_problem(self):
        for name, field in (("stack",) * 2, ("spill_stores", "stores"), ("spill_loads", "loads"), ("shared",) * 2):
            with self.subTest(name):
                self.write(**{field: 200})
                status, output = self.report()
                self.assertEqual(status, 1)
                self.assertIn(f"scalar::fwd_kernel<float, 32> sm_90: {name} 200", output)

    def test_less_and_other_registers_are_notes(self):
        self.write(stores=0, registers=255)
        status, output = self.report()
        self.assertEqual(status, 0)
        self.assertIn("note: scalar::fwd_kernel<float, 32> sm_90: registers 255, 40 in the table", output)
        self.assertIn("spill_stores 0, 4 in the table", output)

    def test_kernels_are_the_same(self):
        self.write(kernel=KERNEL.replace("32", "64"))
        status, output = self.report()
        self.assertEqual(status, 1)
        self.assertIn("scalar::fwd_kernel<float, 64> sm_90: is not in the table", output)
        self.assertIn("scalar::fwd_kernel<float, 32> sm_90: is not in the build", output)

    def test_what_ptxas_did_not_do(self):
        for code in ("C7508", "C7510"):
            self.write(more=f"ptxas info    : ({code}) Potential Performance Loss\n")
            status, output = self.report()
            self.assertEqual(status, 1)
            self.assertIn(code, output)

    def test_an_object_without_output(self):
        (self.build / "src" / "fwd.cu.o.ptxas").unlink()
        self.assertEqual(self.report()[0], 1)

    def test_what_cannot_be_compared_is_skipped(self):
        self.assertEqual(self.report(toolkit="13.1.12")[0], 77)
        self.write(arch="sm_120")
        status, output = self.report()
        self.assertEqual(status, 77)
        self.assertIn("SKIPPED: the table has no rows for sm_120", output)

    def test_an_update_keeps_other_architectures(self):
        self.write(arch="sm_80")
        self.assertEqual(self.report("--update")[0], 0)
        self.assertEqual(self.report(), (0, "1 kernels, 0 problems\n"))
        self.write()
        self.assertEqual(self.report(), (0, "1 kernels, 0 problems\n"))


if __name__ == "__main__":
    unittest.main()
