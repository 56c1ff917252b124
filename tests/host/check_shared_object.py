#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks libcuflash.so as a loader sees it: exported symbols, what it needs, its name, and its hardening."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

# The driver and the CUDA runtime must not be needed: the library loads on a machine without either.
ALLOWED_NEEDED = re.compile(r"^(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux-[a-z0-9-]+)\.so")
SANITIZER_RUNTIME = re.compile(r"^lib[a-z]+san\.so")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def defined_symbols(library: Path) -> list:
    """(type, name with version) of every dynamic symbol that the library defines."""
    lines = run("nm", "-D", "--defined-only", str(library)).splitlines()
    return sorted((fields[-2], fields[-1]) for fields in map(str.split, lines) if fields)


def exported_symbols(library: Path) -> list:
    """Names with their version node, which is part of the binary interface."""
    return [name for _, name in defined_symbols(library) if "@" in name]


def unversioned_symbols(library: Path) -> list:
    """Symbols outside of the version node: there must be none but the node's own absolute entry."""
    return [name for kind, name in defined_symbols(library) if "@" not in name and kind != "A"]


def check_symbols(library: Path, frozen_file: Path) -> list:
    frozen = [line for line in frozen_file.read_text().splitlines() if line and not line.startswith("#")]
    actual = exported_symbols(library)
    problems = [f"symbol {s} is exported but not in {frozen_file}" for s in actual if s not in frozen]
    problems += [f"symbol {s} of {frozen_file} is not exported" for s in frozen if s not in actual]
    problems += [f"symbol {s} is exported without a version" for s in unversioned_symbols(library)]
    return problems


def check_dynamic_section(library: Path, soname: str, sanitized: bool) -> list:
    dynamic = run("readelf", "--dynamic", "--wide", str(library))
    problems = []
    names = re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)
    if names != [soname]:
        problems.append(f"SONAME is {names}, expected {soname}")
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        allowed = ALLOWED_NEEDED.match(needed) or (sanitized and SANITIZER_RUNTIME.match(needed))
        if not allowed:
            problems.append(f"needs {needed}")
    if not re.search(r"\(FLAGS(_1)?\).*\bNOW\b", dynamic):
        problems.append("is not linked with -z now")
    if "TEXTREL" in dynamic:
        problems.append("has text relocations")
    return problems


def check_segments(library: Path) -> list:
    segments = run("readelf", "--program-headers", "--wide", str(library))
    problems = []
    if "GNU_RELRO" not in segments:
        problems.append("is not linked with -z relro")
    stack = re.search(r"GNU_STACK.*", segments)
    if stack is None or re.search(r"\bRWE\b", stack.group()):
        problems.append("has an executable stack")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--soname", required=True)
    parser.add_argument("--symbols", type=Path, required=True, help="the frozen list of exported symbols")
    parser.add_argument("--sanitized", action="store_true", help="allow the sanitizers' own libraries")
    parser.add_argument("--update", action="store_true", help="write the list anew instead of comparing")
    arguments = parser.parse_args()

    if arguments.update:
        header = "# Exported symbols with their version, frozen. Written by check_shared_object.py --update.\n"
        arguments.symbols.write_text(header + "".join(f"{s}\n" for s in exported_symbols(arguments.library)))
    problems = check_symbols(arguments.library, arguments.symbols)
    problems += check_dynamic_section(arguments.library, arguments.soname, arguments.sanitized)
    problems += check_segments(arguments.library)
    for problem in problems:
        print(f"{arguments.library.name}: {problem}")
    if not problems:
        print(f"{arguments.library.name}: {len(exported_symbols(arguments.library))} symbols, all as frozen")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
