# SPDX-License-Identifier: MIT
"""scripts/check_tree.py must find each kind of broken wall, and nothing in a tree without one."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(os.environ["CUFLASH_SOURCE_DIR"]) / "scripts" / "check_tree.py"
SPDX = "// SPDX-License-Identifier: MIT\n"

GOOD_TREE = {
    "CMakeLists.txt": "# SPDX-License-Identifier: MIT\n",
    "include/cuflash/cuflash.h": "/* SPDX-License-Identifier: MIT */\n",
    "src/runtime.cpp": SPDX + "int f() { return cudaGetDevice(nullptr); }\n",
    "src/env.cpp": SPDX + "auto x = std::getenv(name);\n",
    "src/registry.h": SPDX,
    "src/kernels/common/mask.h": SPDX + '#include "kernels/kernel_args.h"\n',
    "src/kernels/scalar/fwd.cuh": SPDX + '#include "kernels/common/mask.h"\n#include "kernels/scalar/tiles.h"\n// a <<< b\n',
    "src/kernels/scalar/tiles.h": SPDX + '#include "registry.h"\n',
    "src/kernels/sm90/fwd.cuh": SPDX + "#include <cute/tensor.hpp>\n",
    "src/kernels/wmma/tiles.h": SPDX,
}
# What is added to a good tree, and what must be said about it.
BROKEN = (
    ("src/kernels/scalar/bad.h", '#include "kernels/wmma/tiles.h"\n', "the room scalar may not include kernels/wmma/tiles.h"),
    ("src/kernels/scalar/bad.h", '#include "../wmma/tiles.h"\n', "the room scalar may not include ../wmma/tiles.h"),
    ("src/kernels/scalar/bad.h", '#include "runtime.h"\n', "the room scalar may not include runtime.h"),
    ("src/kernels/common/bad.h", '#include "kernels/scalar/tiles.h"\n', "common/ may not include kernels/scalar/tiles.h"),
    ("src/kernels/scalar/bad.cuh", "#include <cutlass/cutlass.h>\n", "CUTLASS does not belong here"),
    ("src/kernels/scalar/bad.cu", "kernel<<<1, 1>>>();\n", "a launch with <<< does not belong here"),
    ("src/launch.cpp", "cudaLaunchKernelExC(a, b, c);\n", "cudaLaunch does not belong here"),
    ("src/device.cpp", "cudaGetDevice(&x);\n", "a CUDA runtime call does not belong here"),
    ("src/api.cpp", 'getenv("X");\n', "getenv does not belong here"),
    ("src/kernels/scalar/bad.cuh", 'asm volatile("bar.sync 0;");\n', "inline assembly does not belong here"),
    ("src/api.cpp", "std::abort();\n", "exit or abort does not belong here"),
    ("src/api.cpp", "throw 1;\n", "throw does not belong here"),
    ("stray.txt", "", "stray.txt: not an entry of this tree's top level"),
)


class CheckTreeTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="cuflash-tree-")
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        for path, text in GOOD_TREE.items():
            self.write(path, text)

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def check(self, *arguments):
        result = subprocess.run(
            [sys.executable, SCRIPT, "--root", self.root, *arguments], capture_output=True, text=True
        )
        return result.returncode, result.stdout + result.stderr

    def test_good_tree(self):
        self.assertEqual(self.check("--no-compile"), (0, "check_tree: 0 findings\n"))

    def test_each_broken_wall_is_named(self):
        for path, line, finding in BROKEN:
            with self.subTest(finding):
                self.write(path, SPDX + line)
                status, output = self.check("--no-compile")
                self.assertEqual(status, 1)
                self.assertIn(finding, output)
                self.assertIn(path, output)
                (self.root / path).unlink()

    def test_missing_spdx_line(self):
        self.write("src/bad.h", "#pragma once\n")
        self.assertIn("src/bad.h:1: no line 'SPDX", self.check("--no-compile")[1])

    def test_comments_and_strings_break_no_wall(self):
        self.write("src/fine.cpp", SPDX + '/* getenv\n throw */ const char* s = "<<< cudaLaunch(";\n')
        self.assertEqual(self.check("--no-compile")[0], 0)

    def test_header_that_does_not_compile_alone(self):
        self.write("src/kernels/common/mask.h", SPDX + "#pragma once\ninline Missing f();\n")
        self.write("src/kernels/scalar/tiles.h", SPDX + "#pragma once\n")
        status, output = self.check()
        self.assertEqual(status, 1)
        self.assertIn("src/kernels/common/mask.h:1: does not compile alone", output)
        self.assertEqual(output.count("does not compile alone"), 1)


if __name__ == "__main__":
    unittest.main()
