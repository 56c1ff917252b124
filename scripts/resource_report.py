#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Registers, static shared memory, stack and spills of every kernel of a build, against a table.

usage: resource_report.py --build-dir DIR --toolkit VERSION [--table FILE] [--update]
  --build-dir DIR    a build, which has written ptxas' output next to each object (cmake/ResourceUsage.cmake)
  --toolkit VERSION  of the compiler: other versions allocate otherwise
  --table FILE       by default tests/golden/resources.txt
  --update           writes the table: the build's architectures anew, others as they are

Ends with 1 if a kernel uses more stack, spills or static shared memory than the table says, if the table and the build
do not hold the same kernels, or if ptxas serialised wgmma (C7510 to C7519) or ignored setmaxnreg (C7508). Registers are compared
and differences printed; ptxas trades them, and what costs time is the spills. Ends with 77 if nothing can be compared.
The targets and tests of the build call this script: cmake --build DIR --target update_resources
"""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys

SKIPPED = 77
FIELDS = ("registers", "shared", "stack", "spill_stores", "spill_loads")
BUDGETS = FIELDS[1:]
DIAGNOSTICS = {"C7508": "setmaxnreg is ignored"} | {f"C751{i}": "wgmma is serialized" for i in range(10)}
TABLE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "resources.txt"

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
PROPERTIES = re.compile(r"Function properties for (\w+)")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(.*)")
SHARED = re.compile(r"(\d+) bytes smem")


# ---- Reading ---------------------------------------------------------------------------------------------------------


def parse_ptxas(text):
    """{(mangled kernel, architecture): {field: number}} of one object."""
    usage, current, function = {}, None, None
    for line in text.splitlines():
        if found := ENTRY.search(line):
            current = usage.setdefault(found.groups(), {})
            kernel = found.group(1)
        elif found := PROPERTIES.search(line):
            function = found.group(1)
        elif current is not None and (found := FRAME.search(line)) and function == kernel:
            current.update(zip(("stack", "spill_stores", "spill_loads"), map(int, found.groups())))
        elif current is not None and (found := USED.search(line)):
            shared = SHARED.search(found.group(2))
            current.update(registers=int(found.group(1)), shared=int(shared.group(1)) if shared else 0)
    return usage


def demangled(names):
    """{mangled: 'scalar::fwd_kernel<float, 32>'}"""
    result = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return dict(zip(names, map(without_parameters, result.stdout.splitlines())))


def without_parameters(signature):
    """'scalar::fwd_kernel<float, 32>' from 'void cuflash::scalar::fwd_kernel<float, 32>(cuflash::FwdArgs)'"""
    depth, end = 0, len(signature)
    for index in range(len(signature) - 1, -1, -1):  # template arguments may hold parentheses too
        depth += {")": 1, "(": -1}.get(signature[index], 0)
        if depth == 0:
            end = index if signature.endswith(")") else end
            break
    return signature[:end].removeprefix("void ").replace("cuflash::", "")


def objects_of(build_dir):
    """Objects of the library that hold kernels."""
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        command = shlex.split(entry["command"])
        path = pathlib.Path(entry["directory"]) / command[command.index("-o") + 1]
        if entry["file"].endswith(".cu") and (build_dir / "src") in path.parents:
            yield path


def read_build(build_dir):
    """(usage by (kernel, architecture), sentences about what ptxas said or did not say)"""
    usage, problems = {}, []
    for path in objects_of(build_dir):
        log = path.with_name(path.name + ".ptxas")
        if not log.is_file():
            problems.append(f"{path.name}: nothing is known of it: its build wrote no .ptxas file")
            continue
        text = log.read_text()
        usage.update(parse_ptxas(text))
        problems += [f"{path.name}: {code}: {what}" for code, what in DIAGNOSTICS.items() if code in text]
    names = demangled(sorted({kernel for kernel, _ in usage}))
    return {(names[kernel], arch): used for (kernel, arch), used in usage.items()}, problems


def read_table(path):
    """(version of the toolkit, usage)"""
    toolkit, usage = None, {}
    for line in path.read_text().splitlines():
        if line.startswith("# toolkit "):
            toolkit = line.split()[2]
        elif line and not line.startswith("#"):
            kernel, arch, *numbers = (cell.strip() for cell in line.split("|"))
            usage[kernel, arch] = dict(zip(FIELDS, map(int, numbers)))
    return toolkit, usage


def write_table(path, toolkit, usage):
    width = max(len(kernel) for kernel, _ in usage)
    lines = [
        "# What ptxas says that each kernel uses; shared memory is the static part, in bytes as stack and spills are.",
        "# The build writes this file: cmake --build build --target update_resources",
        f"# toolkit {toolkit}",
        f"# {'kernel':{width - 2}} | arch   | " + " | ".join(FIELDS),
    ]
    for (kernel, arch), used in sorted(usage.items()):
        numbers = " | ".join(f"{used[field]:{len(field)}}" for field in FIELDS)
        lines.append(f"{kernel:{width}} | {arch:6} | {numbers}")
    path.write_text("\n".join(lines) + "\n")


# ---- Judging ---------------------------------------------------------------------------------------------------------


def release(version):
    return ".".join(version.split(".")[:2])


def compare(built, table):
    """(problems, notes) of the architectures that both have."""
    architectures = {arch for _, arch in built} & {arch for _, arch in table}
    problems, notes = [], []
    for key in sorted(built.keys() | table.keys()):
        kernel, arch = key
        if arch not in architectures:
            continue
        if key not in table or key not in built:
            problems.append(f"{kernel} {arch}: is not in the {'table' if key in built else 'build'}")
            continue
        for field in FIELDS:
            now, then = built[key][field], table[key][field]
            text = f"{kernel} {arch}: {field} {now}, {then} in the table"
            if now > then and field in BUDGETS:
                problems.append(text)
            elif now != then:
                notes.append(text)
    return problems, notes


def merged(built, table):
    """The table after an update: rows of architectures that were not built stay, but for kernels that are gone."""
    kernels = {kernel for kernel, _ in built}
    architectures = {arch for _, arch in built}
    kept = {key: used for key, used in table.items() if key[0] in kernels and key[1] not in architectures}
    return {**kept, **built}


def check(options, built, problems):
    toolkit, table = read_table(options.table)
    architectures = {arch for _, arch in built}
    unknown = sorted(architectures - {arch for _, arch in table})
    reason = None
    if release(options.toolkit) != release(toolkit):
        reason = f"the table is of CUDA {release(toolkit)}, this build of CUDA {release(options.toolkit)}"
    elif unknown == sorted(architectures):
        reason = f"the table has no rows for {', '.join(unknown)}"
    else:
        more_problems, notes = compare(built, table)
        problems = problems + more_problems
        print("".join(f"note: {note}\n" for note in notes), end="")
        print("".join(f"note: the table has no rows for {arch}\n" for arch in unknown), end="")
    print("".join(f"{problem}\n" for problem in problems), end="")
    print(f"{len(built)} kernels, {len(problems)} problems")
    if problems:
        print("if this is meant: cmake --build <build> --target update_resources")
        return 1
    if reason:
        print(f"SKIPPED: {reason}")
        return SKIPPED
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, required=True)
    parser.add_argument("--toolkit", required=True)
    parser.add_argument("--table", type=pathlib.Path, default=TABLE)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    built, problems = read_build(options.build_dir.resolve())
    if not built:
        print("".join(f"{problem}\n" for problem in problems), end="")
        sys.exit("error: no kernels found in the build")
    if not options.update:
        return check(options, built, problems)
    table = read_table(options.table)[1] if options.table.is_file() else {}
    write_table(options.table, options.toolkit, merged(built, table))
    print(f"{options.table}: {len(built)} kernels of the build")
    return 0


if __name__ == "__main__":
    sys.exit(main())
