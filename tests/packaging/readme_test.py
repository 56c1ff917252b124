# SPDX-License-Identifier: MIT
"""The C program in README.md is examples/minimal.c, compiles with no warning and prints what it says."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["CUFLASH_SOURCE_DIR"])
LIBRARY_FOLDER = pathlib.Path(os.environ["CUFLASH_BINARY_DIR"]) / "src"


class ReadmeTest(unittest.TestCase):
    def setUp(self):
        blocks = re.findall(r"^```c\n(.*?)^```$", (SOURCE / "README.md").read_text(), re.DOTALL | re.MULTILINE)
        self.assertTrue(blocks, "README.md has no ```c block")
        self.program = blocks[0]

    def test_is_the_example(self):
        spdx, _, example = (SOURCE / "examples" / "minimal.c").read_text().partition("\n")
        self.assertIn("SPDX", spdx)
        self.assertEqual(self.program.replace(spdx + "\n", ""), example)

    def test_compiles_and_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder) / "readme.c", pathlib.Path(folder) / "readme"
            source.write_text(self.program)
            flags = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{SOURCE / 'include'}"]
            subprocess.run(
                [os.environ["CC"], *flags, str(source), "-o", str(program), f"-L{LIBRARY_FOLDER}", "-lcuflash",
                 f"-Wl,-rpath,{LIBRARY_FOLDER}"], check=True,
            )  # fmt: skip
            self.assertEqual(subprocess.run([program], capture_output=True, text=True).stdout, "row 127: 63.5\n")


if __name__ == "__main__":
    unittest.main()
