#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the walls of the source tree: what may include what, and what may be written only where.

usage: check_tree.py [--root DIR] [--no-compile]
  --root DIR    the tree; by default the one that holds this script
  --no-compile  leaves out compiling every header alone

Prints one line "path:line: what is wrong" per finding; ends with 1 if there is one.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

TOP_LEVEL = {
    ".ci", ".clang-format", ".clang-tidy", ".gitignore", "CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json", "LICENSE",
    "README.md", "benchmarks", "cmake", "docs", "examples", "include", "scripts", "src", "tests",
}  # fmt: skip
# Beside the tree, and ignored by git.
IGNORED_TOP_LEVEL = re.compile(r"^(\.git|\.venv|\.deps|build.*)$")
CODE_FOLDERS = ("include", "src", "tests", "benchmarks", "examples", "cmake", "scripts", ".ci")
CPP_SUFFIXES = {".h", ".c", ".cpp", ".cuh", ".cu"}
# Files without room for a comment, or data.
NO_SPDX_SUFFIXES = {".abi", ".json", ".txt", ".map", ".md", ".npz", ".bin", ".csv"}

# What a room may include besides files of its own folder, common/ and system headers; common/ too, but nothing of a room.
ROOM_INCLUDES = {
    "cuflash/cuflash.h", "device.h", "env.h", "kernels/kernel_args.h", "launch.cuh", "launch.h", "problem.h", "registry.h",
    "status.h", "text_writer.h", "workspace.h",
}  # fmt: skip
# Rooms launch through launch.h. What else they need of the runtime is named here.
RUNTIME_USERS = {"src/kernels/sm90/tensor_map.cpp"}

# (what, pattern, files in src/ where it may be)
ONLY_IN = (
    ("a launch with <<<", re.compile(r"<<<"), re.compile(r"$^")),
    ("cudaLaunch", re.compile(r"\bcudaLaunch\w*\("), re.compile(r"^src/runtime\.cpp$")),
    ("a CUDA runtime call", re.compile(r"\bcuda[A-Z]\w*\("), re.compile(r"^src/runtime\.cpp$")),
    ("getenv", re.compile(r"\bgetenv\b"), re.compile(r"^src/env\.cpp$")),
    ("inline assembly", re.compile(r"\basm\b"), re.compile(r"^src/kernels/\w+/(ptx|barriers)\.cuh$|^src/kernels/sm90/wgmma\.cuh$")),
    ("CUTLASS", re.compile(r"#\s*include\s*[<\"](cute|cutlass)/"), re.compile(r"^src/kernels/sm90/")),
    ("exit or abort", re.compile(r"\b(std::)?(exit|abort)\("), re.compile(r"$^")),
    ("throw", re.compile(r"\bthrow\b"), re.compile(r"$^")),
)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def without_comments(text):
    """The text with comments and string literals blanked, line by line as before; include lines are kept whole."""
    def blank(match):
        token = match.group(0)
        if token.startswith("#"):
            return token
        return re.sub(r"[^\n]", " ", token) if token.startswith("/") else '""'

    pattern = r'^[ \t]*#[ \t]*include[^\n]*|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
    return re.sub(pattern, blank, text, flags=re.DOTALL | re.MULTILINE)


def files_of(root, folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(root)


def top_level_entries(root):
    """What git would commit; without git, what lies there."""
    command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (root / ".git").exists() and shutil.which("git"):
        names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
        return sorted({pathlib.PurePosixPath(name).parts[0] for name in names if name})
    return sorted(os.listdir(root))


def check_top_level(root):
    for entry in top_level_entries(root):
        if entry not in TOP_LEVEL and not IGNORED_TOP_LEVEL.match(entry):
            yield f"{entry}: not an entry of this tree's top level"


def check_spdx(root):
    for path in files_of(root, CODE_FOLDERS):
        if path.suffix in NO_SPDX_SUFFIXES and path.name != "CMakeLists.txt":
            continue
        head = (root / path).read_bytes()[:400].decode("utf-8", "replace")
        if "SPDX-License-Identifier: MIT" not in "\n".join(head.splitlines()[:3]):
            yield f"{path}:1: no line 'SPDX-License-Identifier: MIT'"


def room_of(path):
    """'scalar' for src/kernels/scalar/fwd.cuh; common/ is no room."""
    parts = path.parts
    is_room = len(parts) > 3 and parts[:2] == ("src", "kernels") and parts[2] != "common"
    return parts[2] if is_room else None


def is_allowed_in_room(root, path, room, include):
    beside = root / path.parent / include
    if beside.is_file():  # relative to the including file
        return (root / "src" / "kernels" / room) in beside.resolve().parents
    if include.startswith(("kernels/common/", f"kernels/{room}/")):
        return True
    return include in ROOM_INCLUDES or (include == "runtime.h" and path.as_posix() in RUNTIME_USERS)


def check_includes(root, path, lines):
    room = room_of(path)
    is_common = path.parts[:3] == ("src", "kernels", "common")
    for number, line in enumerate(lines, 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        include = found.group(1)
        if room and not is_allowed_in_room(root, path, room, include):
            yield f"{path}:{number}: the room {room} may not include {include}"
        if is_common and not is_allowed_in_room(root, path, "common", include):
            yield f"{path}:{number}: common/ may not include {include}"


def check_code(root):
    for path in files_of(root, ("src",)):
        if path.suffix not in CPP_SUFFIXES:
            continue
        lines = without_comments((root / path).read_text()).splitlines()
        yield from check_includes(root, path, lines)
        for number, line in enumerate(lines, 1):
            for what, pattern, allowed in ONLY_IN:
                if pattern.search(line) and not allowed.match(path.as_posix()):
                    yield f"{path}:{number}: {what} does not belong here"


def compile_alone(root, generated, cuda_include, path):
    language = ["-xc", "-std=c99"] if path.parts[0] == "include" else ["-xc++", "-std=c++20"]
    command = [
        "c++", *language, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", root / "include", "-I", root / "src",
        "-I", generated, "-isystem", cuda_include, "-",
    ]  # fmt: skip
    result = subprocess.run(
        [str(c) for c in command], input=f'#include "{root / path}"\n', capture_output=True, text=True
    )
    return [] if result.returncode == 0 else [f"{path}:1: does not compile alone:\n{result.stderr.strip()}"]


def cuda_include_folder():
    for nvcc in [pathlib.Path(p) / "nvcc" for p in os.environ.get("PATH", "").split(os.pathsep)] + [
        pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "nvcc"
    ]:
        include = nvcc.parent.parent / "include"
        if nvcc.is_file() and include.is_dir():
            return include
    sys.exit("error: no CUDA Toolkit found; use --no-compile")


def check_headers(root):
    """Every .h is complete by itself; a .cuh needs nvcc and is left to the build."""
    headers = [p for p in files_of(root, ("include", "src")) if p.suffix == ".h"]
    cuda_include = cuda_include_folder()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        for findings in pool.map(lambda p: compile_alone(root, pathlib.Path(folder), cuda_include, p), headers):
            yield from findings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    root = options.root.resolve()
    findings = [*check_top_level(root), *check_spdx(root), *check_code(root)]
    if not options.no_compile:
        findings += check_headers(root)
    for finding in findings:
        print(finding)
    print(f"check_tree: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
