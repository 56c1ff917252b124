# SPDX-License-Identifier: MIT
"""Where cmake/FindCutlass.cmake looks for the headers, tried with trees that hold nothing but a version."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = os.environ["CUFLASH_SOURCE_DIR"]
CMAKE = os.environ["CMAKE"]


def make_headers(include, version):
    (include / "cutlass").mkdir(parents=True)
    (include / "cutlass" / "cutlass.h").touch()
    lines = [f"#define CUTLASS_{name} {value}\n" for name, value in zip(("MAJOR", "MINOR", "PATCH"), version.split("."))]
    (include / "cutlass" / "version.h").write_text("#include <cstdint>\n" + "".join(lines))
    return include


class CutlassTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="cuflash-cutlass-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def search(self, *arguments, python_path=""):
        """(found?, output) of the search with a Python that sees only python_path."""
        env = {**os.environ, "PYTHONPATH": str(python_path)}
        python = self.folder / "python3"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        python.chmod(0o755)
        command = [CMAKE, "-S", HERE / "cutlass", "-B", self.folder / "build", f"-DCUFLASH_SOURCE={SOURCE}",
                   f"-DPython3_EXECUTABLE={python}", *arguments]  # fmt: skip
        result = subprocess.run(
            [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
        )
        return result.returncode == 0, result.stdout

    def make_cmake_package(self, version):
        prefix = self.folder / "prefix"
        include = make_headers(prefix / "include", version)
        config = prefix / "lib" / "cmake" / "NvidiaCutlass"
        config.mkdir(parents=True)
        (config / "NvidiaCutlassConfig.cmake").write_text(
            "add_library(nvidia::cutlass::cutlass INTERFACE IMPORTED)\n"
            f'target_include_directories(nvidia::cutlass::cutlass INTERFACE "{include}")\n'
        )
        return prefix

    def make_wheel(self, version):
        package = self.folder / "site" / "cutlass_library"
        make_headers(package / "source" / "include", version)
        (package / "__init__.py").write_text("raise RuntimeError('must not be imported')\n")
        return package.parent

    def test_nothing_found_says_what_helps(self):
        found, output = self.search()
        self.assertFalse(found)
        for way in ("CUFLASH_CUTLASS_DIR", "pip install nvidia-cutlass", "CUFLASH_FETCH_CUTLASS", "CUFLASH_WITH_SM90=OFF"):
            self.assertIn(way, output)

    def test_folder_of_headers(self):
        include = make_headers(self.folder / "mine", "4.3.1")
        found, output = self.search(f"-DCUFLASH_CUTLASS_DIR={include}")
        self.assertTrue(found, output)
        self.assertIn(f"found: 4.3.1|{include}|CUFLASH_CUTLASS_DIR", output)

    def test_folder_of_a_checkout(self):
        include = make_headers(self.folder / "mine" / "include", "4.3.1")
        found, output = self.search(f"-DCUFLASH_CUTLASS_DIR={include.parent}")
        self.assertTrue(found, output)
        self.assertIn(f"|{include}|", output)

    def test_wrong_folder_is_an_error_and_no_fallback(self):
        found, output = self.search(f"-DCUFLASH_CUTLASS_DIR={self.folder}", python_path=self.make_wheel("4.2.0"))
        self.assertFalse(found, output)

    def test_cmake_package(self):
        prefix = self.make_cmake_package("4.1.0")
        found, output = self.search(f"-DCMAKE_PREFIX_PATH={prefix}")
        self.assertTrue(found, output)
        self.assertIn("found: 4.1.0|", output)
        self.assertIn("find_package(NvidiaCutlass)", output)

    def test_wheel_is_found_and_not_imported(self):
        found, output = self.search(python_path=self.make_wheel("4.2.0"))
        self.assertTrue(found, output)
        self.assertIn("found: 4.2.0|", output)
        self.assertIn("nvidia-cutlass", output)

    def test_order(self):
        include = make_headers(self.folder / "mine", "1.0.0")
        package = f"-DCMAKE_PREFIX_PATH={self.make_cmake_package('2.0.0')}"
        wheel = self.make_wheel("3.0.0")
        self.assertIn("found: 2.0.0|", self.search(package, python_path=wheel)[1])
        self.assertIn("found: 1.0.0|", self.search(package, f"-DCUFLASH_CUTLASS_DIR={include}", python_path=wheel)[1])


if __name__ == "__main__":
    unittest.main()
