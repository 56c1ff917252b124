# SPDX-License-Identifier: MIT
"""Every command and snippet of README.md, docs/ and src/kernels/README.md does what it says: programs run, fragments
compile, commands name scripts, options, targets and variables that exist. Nothing is left out without a reason in the
text; snippets.py says how.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import snippets

SOURCE = pathlib.Path(os.environ["CUFLASH_SOURCE_DIR"])
BINARY = pathlib.Path(os.environ["CUFLASH_BINARY_DIR"])
WRAPPERS = pathlib.Path(__file__).resolve().parent / "snippets"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def run(command, **options):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, **options)
    if result.returncode != 0:
        raise ValueError(f"{command[0]} ends with {result.returncode}:\n{(result.stdout + result.stderr)[-2000:]}")


class Checker:
    """One method per language. Each raises ValueError, or CalledProcessError, if the block is wrong."""

    def __init__(self, scratch):
        self.scratch = scratch
        self.shell = snippets.ShellChecker(SOURCE, BINARY, os.environ["CMAKE"], os.environ["CTEST"])
        # A folder as the reader has it, but for build/, where commands write.
        for path in SOURCE.iterdir():
            if not path.name.startswith((".", "build")):
                (scratch / path.name).symlink_to(path)
        (scratch / "build").mkdir()
        (scratch / "build" / "src").symlink_to(BINARY / "src")

    def check(self, block):
        language = {"sh": "bash", "c++": "cpp"}.get(block.language, block.language)
        method = getattr(self, f"check_{language}", None)
        if not language or method is None:
            raise ValueError(f"a block with the language '{language}' is not checked")
        if block.directive.startswith("not run, because "):
            return
        if block.directive and not block.directive.startswith("inside "):
            raise ValueError(f"what does 'snippet: {block.directive}' mean?")
        method(block)

    def check_text(self, block):
        for line in block.text.splitlines():
            if snippets.COMMAND_LINE.match(line):
                raise ValueError(f"is a command, and the block is text: {line}")

    def check_bash(self, block):
        lines = [self.shell.check(command) for command in snippets.commands_of(block.text)]
        runnable = [line for line in lines if line]
        if any(not line.startswith("export ") for line in runnable):
            script = "\n".join(["set -euo pipefail", *runnable])
            run(["bash", "-c", script], cwd=self.scratch, stdin=subprocess.DEVNULL)

    def check_c(self, block):
        self.compile(block, os.environ["CC"], "c", ["-std=c11", "-pedantic"])

    def check_cpp(self, block):
        internal = ["-I", SOURCE / "src"] if block.directive else []
        self.compile(block, os.environ["CXX"], "c++", ["-std=c++20", *internal])

    def compile(self, block, compiler, language, options):
        """A program is compiled, linked and run; a fragment is compiled inside of its wrapper."""
        text = snippets.wrapped(block, WRAPPERS)[0] if block.directive else block.text
        is_program = not block.directive
        if is_program and not re.search(r"\bint main\(", text):
            raise ValueError("is no program; a fragment needs the comment <!-- snippet: inside WRAPPER -->")
        include = ["-I", SOURCE / "include"]
        for folder in os.environ["CUDA_INCLUDE"].split(os.pathsep) if block.directive else []:
            include += ["-isystem", folder]
        program = self.scratch / "build" / "snippet"
        link = ["-o", program, f"-L{BINARY / 'src'}", "-lcuflash", f"-Wl,-rpath,{BINARY / 'src'}"]
        command = [compiler, *options, *WARNINGS, *include, "-x", language, "-"]
        run(command + (link if is_program else ["-fsyntax-only"]), input=text)
        if is_program:
            run([program])

    def check_python(self, block):
        run([sys.executable, "-B", "-c", block.text], cwd=self.scratch)

    def check_cmake(self, block):
        """A consumer's lines are configured with the installed package; others use what the project defines."""
        if block.directive:
            text, wrapper = snippets.wrapped(block, WRAPPERS)
            folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch, prefix=wrapper.stem))
            (folder / "CMakeLists.txt").write_text(text)
            run([os.environ["CMAKE"], "--install", BINARY, "--prefix", folder / "prefix"])
            run([os.environ["CMAKE"], "-S", folder, "-B", folder / "out", f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}"])
            return
        for name, arguments in re.findall(r"^ *(\w+)\(([^)]*)\)", block.text, re.MULTILINE):
            self.check_call(name, arguments)

    def check_call(self, name, arguments):
        """A function of this project, with keywords that it parses."""
        for path in [*SOURCE.rglob("src/**/CMakeLists.txt"), *(SOURCE / "cmake").glob("*.cmake")]:
            body = re.search(rf"^function\({name}\b(.*?)^endfunction", path.read_text(), re.DOTALL | re.MULTILINE)
            if body:
                parsed = re.search(r"cmake_parse_arguments\((.*?)\)", body.group(1), re.DOTALL)
                known = set(re.findall(r"\b[A-Z][A-Z_]+\b", parsed.group(1))) if parsed else set()
                unknown = set(re.findall(r"\b[A-Z][A-Z_]+\b", arguments)) - known
                if unknown:
                    raise ValueError(f"{name} does not know {', '.join(sorted(unknown))}")
                return
        raise ValueError(f"the project defines no function {name}")


class SnippetsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="cuflash-snippets-")
        cls.addClassCleanup(holder.cleanup)
        cls.checker = Checker(pathlib.Path(holder.name))
        cls.documents = [(path, path.relative_to(SOURCE).as_posix()) for path in snippets.documents(SOURCE)]

    def test_every_block(self):
        blocks = [block for path, name in self.documents for block in snippets.blocks_of(path, name)]
        self.assertGreater(len(blocks), 20)
        for block in blocks:
            with self.subTest(block.where):
                self.assertIsNone(self.failure(block), block.where)

    def failure(self, block):
        try:
            self.checker.check(block)
        except (ValueError, subprocess.SubprocessError) as error:
            return str(error)
        return None

    def test_every_command_in_the_text(self):
        found = [item for path, name in self.documents for item in snippets.inline_commands(path, name)]
        self.assertGreater(len(found), 5)
        for where, command in found:
            with self.subTest(where):
                self.checker.shell.check(command, runs=False)

    def test_every_name_of_the_library(self):
        for path, name in self.documents:
            for word in sorted(set(re.findall(r"\b(?:CUFLASH_|cuflash)[A-Z_]\w+", path.read_text()))):
                with self.subTest(f"{name}: {word}"):
                    self.assertTrue(snippets.is_in_sources(SOURCE, word), f"{name}: {word} is nowhere in the sources")

    def test_wrong_blocks_are_noticed(self):
        for language, directive, text in (
            ("", "", "words\n"),
            ("perl", "", "1;\n"),
            ("text", "", "scripts/run.sh\n"),
            ("c", "", "int x;\n"),
            ("c", "", "int main(void) { return 1; }\n"),
            ("c", "inside nowhere.c", "x;\n"),
            ("c", "not run", "x;\n"),
            ("cpp", "inside tile_table.cpp", "struct Tile { int head_dim };\n"),
            ("python", "", "raise ValueError\n"),
            ("cmake", "", "cuflash_add_kernel_family(mine MIN_COMPUTE 80)\n"),
            ("cmake", "", "cuflash_no_function(mine)\n"),
            ("bash", "", "scripts/nothing.sh\n"),
            ("bash", "", "scripts/test.sh --no-such-option\n"),
            ("bash", "", "cmake --build build --target no_such_target\n"),
            ("bash", "", "cmake -S . -B build -DCUFLASH_NO_OPTION=ON\n"),
            ("bash", "", "ctest --test-dir build -L no_such_label\n"),
            ("bash", "", "CUFLASH_NO_VARIABLE=1 scripts/test.sh\n"),
            ("bash", "", "git diff no/such/file\n"),
            ("bash", "", "rm -rf build\n"),
        ):
            with self.subTest(text):
                self.assertIsNotNone(self.failure(snippets.Block("x.md", 1, language, directive, text)))


if __name__ == "__main__":
    unittest.main()
