# SPDX-License-Identifier: MIT
"""Fenced blocks and inline commands of a Markdown file, and the checks of shell commands.

A comment right above a block, which readers do not see, says what the test cannot know:

  <!-- snippet: inside NAME -->             a fragment: it takes the place of @SNIPPET@ in snippets/NAME.in
  <!-- snippet: not run, because REASON --> nothing checks it
"""
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
from dataclasses import dataclass

FENCE = re.compile(r"^( *)```(.*)$")
DIRECTIVE = re.compile(r"^<!-- snippet: (.*) -->$")
INLINE = re.compile(r"(?<!`)`((?:scripts/|cmake |ctest |cpack )[^`]*)`(?!`)")
# A line of a text block that is a command has the wrong language, and would not be checked.
COMMAND_LINE = re.compile(r"^\s*(\$ |scripts/\w+\.(sh|py)|cmake |ctest |build/\w+)")


@dataclass
class Block:
    file: str
    line: int
    language: str
    directive: str
    text: str

    @property
    def where(self):
        return f"{self.file}:{self.line}"


def blocks_of(path, name):
    """All fenced blocks of a Markdown file."""
    lines = path.read_text().splitlines()
    opened = None
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if opened is None and fence:
            above = next((text for text in reversed(lines[: number - 1]) if text.strip()), "")
            directive = DIRECTIVE.match(above.strip())
            opened = Block(name, number, fence.group(2).strip(), directive.group(1) if directive else "", "")
        elif opened is not None and fence and not fence.group(2).strip():
            yield opened
            opened = None
        elif opened is not None:
            opened.text += line + "\n"
    if opened is not None:
        raise ValueError(f"{opened.where}: the block does not end")


def inline_commands(path, name):
    """(where, command) of `scripts/...`, `cmake ...` and so on in the text."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for command in INLINE.findall(line):
            yield f"{name}:{number}", command


def commands_of(text):
    """The commands of a shell block: continued lines joined, comments left out."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        line = re.sub(r"(^|\s)#.*$", "", line).strip()
        if line:
            yield line


class ShellChecker:
    """Checks commands against the tree and a build of it. check() returns the command as it can be run in a scratch
    folder, whose build/ is empty and stands for the build, or None for one that is only looked at.
    """

    def __init__(self, source, binary, cmake, ctest):
        self.source, self.binary, self.cmake, self.ctest = source, binary, cmake, ctest
        self.cache = set(re.findall(r"^([\w-]+):", (binary / "CMakeCache.txt").read_text(), re.MULTILINE))
        self.targets, self.helps = None, {}

    def check(self, line, runs=True):
        """`runs` is false for what the text only mentions: a module beside the scripts, for example."""
        words = shlex.split(line)
        while words and re.match(r"^\w+=", words[0]):
            self.variable(words.pop(0).split("=")[0])
        if not words:
            return None
        if words[0] == "cc" or re.match(r"build/\w+$", words[0]):
            return line
        if "/" in words[0]:
            in_build = words[0].startswith("build/")
            program = self.binary / words[0].removeprefix("build/") if in_build else self.source / words[0]
            return self.program_options(words, program, runs)
        checks = {
            "cmake": self.cmake_command, "ctest": self.ctest_command, "cpack": self.cpack_command,
            "git": self.git_command, "export": self.export_command,
        }  # fmt: skip
        if words[0] in checks:
            return checks[words[0]](words, line)
        raise ValueError(f"nothing checks the command {words[0]}")

    def variable(self, name):
        standard = {"PKG_CONFIG_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "LD_LIBRARY_PATH"}
        if name not in standard and not is_in_sources(self.source, name):
            raise ValueError(f"nothing reads the variable {name}")

    def program_options(self, words, program, runs):
        """The program is there, and its help knows the options."""
        if not program.is_file():
            raise ValueError(f"there is no {words[0]}")
        if runs and not os.access(program, os.X_OK):
            raise ValueError(f"{words[0]} cannot be run")
        if len(words) == 1:
            return
        if program not in self.helps:
            result = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60)
            if result.returncode != 0:
                raise ValueError(f"{words[0]} --help ends with {result.returncode}")
            self.helps[program] = result.stdout
        for option in (w.split("=")[0] for w in words[1:] if w.startswith("-")):
            if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", self.helps[program]):
                raise ValueError(f"{words[0]} has no option {option}")

    def cmake_command(self, words, line):
        if "--install" in words:
            return line.replace("cmake --install build", shlex.join([self.cmake, "--install", str(self.binary)]), 1)
        if "--build" in words:
            return self.build_targets(words)
        if words[1:] == ["--list-presets"]:
            subprocess.run([self.cmake, "--list-presets"], cwd=self.source, capture_output=True, check=True)
            return None
        if "-S" not in words and "-B" not in words:
            raise ValueError("cmake does neither configure nor build nor install")
        for name in re.findall(r"-D(\w+)[=:]", line):
            if name not in self.cache and not name.startswith("CMAKE_"):
                raise ValueError(f"the build has no option {name}")
        return None

    def build_targets(self, words):
        if self.targets is None:
            listing = subprocess.run(
                [self.cmake, "--build", self.binary, "--target", "help"], capture_output=True, text=True, check=True
            )
            self.targets = set(re.findall(r"^(?:\.\.\. )?([\w./-]+)", listing.stdout, re.MULTILINE))
        for option, name in zip(words, words[1:]):
            if option in ("--target", "-t") and name not in self.targets:
                raise ValueError(f"the build has no target {name}")

    def ctest_command(self, words, line):
        """The selection is not empty. CTest writes a log even then, so it is asked in another folder."""
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "CTestTestfile.cmake").write_text(f'subdirs("{self.binary}")\n')
            words = [self.ctest if w == "ctest" else folder if w == "build" else w for w in words]
            listing = subprocess.run([*words, "-N"], capture_output=True, text=True, check=True).stdout
        if "Total Tests: 0" in listing:
            raise ValueError("selects no test")

    def cpack_command(self, words, line):
        for word in words:
            if word.startswith("build/") and not (self.binary / word.removeprefix("build/")).is_file():
                raise ValueError(f"the build has no {word}")

    def git_command(self, words, line):
        for word in words[2:]:
            if not (self.source / word).exists():
                raise ValueError(f"there is no {word}")

    def export_command(self, words, line):
        for word in words[1:]:
            self.variable(word.split("=")[0])
        return line


def is_in_sources(source, name):
    """Whether a name is in a file that is neither documentation nor about it, as this one is."""
    folders = ("include", "src", "tests", "benchmarks", "cmake", "scripts", "examples", "CMakeLists.txt")
    for folder in (source / f for f in folders):
        for path in [folder] if folder.is_file() else folder.rglob("*"):
            is_data = path.suffix in (".md", ".json", ".bin", ".pyc", ".svg") or "packaging" in path.parts
            if path.is_file() and not is_data:
                if re.search(rf"(?<!\w){name}", path.read_text(errors="replace")):
                    return True
    return False


def documents(source):
    """What users read."""
    return [source / "README.md", *sorted((source / "docs").rglob("*.md")), source / "src" / "kernels" / "README.md"]


def wrapped(block, folder):
    """The fragment in its wrapper, and the wrapper's path."""
    wrapper = pathlib.Path(folder) / (block.directive.removeprefix("inside ") + ".in")
    if not wrapper.is_file():
        raise ValueError(f"{block.where}: there is no {wrapper.name} in tests/packaging/snippets")
    return wrapper.read_text().replace("@SNIPPET@", block.text), wrapper
