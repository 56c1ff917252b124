#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs what needs a GPU and writes the record of it. Use it through verify_gpu.sh and build_for_gpu.sh.

  stamp  writes build_record.json into a build folder: which sources its programs were built from, and their hashes
  run    checks that record, runs tests, sanitizers and benchmark, and writes <out>/verification/<gpu>.json
"""
import argparse
import ctypes
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import evidence_record
import source_digest
from evidence_record import SANITIZER_TOOLS, SCHEMA, STEPS

REPO = pathlib.Path(__file__).resolve().parent.parent
GPU_FIELDS = ("name", "driver_version", "compute_cap", "memory.total", "power.limit", "clocks.max.sm", "clocks.max.mem")


# ---- The build -------------------------------------------------------------------------------------------------------


def test_programs(build_dir):
    found = (p for p in (build_dir / "tests").rglob("test_gpu_*") if p.is_file() and os.access(p, os.X_OK))
    return {p.name: p for p in sorted(found)}


def benchmark_program(build_dir):
    return build_dir / "benchmarks" / "cuflash_bench"


def library(build_dir):
    return build_dir / "src" / "libcuflash.so"


def binary_hashes(build_dir):
    binaries = [*test_programs(build_dir).values(), benchmark_program(build_dir), library(build_dir)]
    return {
        p.relative_to(build_dir).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in binaries if p.is_file()
    }


def stamp(options):
    now = source_digest.digest(source_digest.file_hashes(REPO))
    if now != options.expect:
        sys.exit("error: the sources changed during the build; build again")
    binaries = binary_hashes(options.build_dir)
    if library(options.build_dir).relative_to(options.build_dir).as_posix() not in binaries:
        sys.exit(f"error: {library(options.build_dir)} was not built")
    record = {"digest": now, "binaries": binaries}
    (options.build_dir / "build_record.json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"    digest {now}, {len(binaries)} binaries")


def build_problems(build_dir, digest):
    """Why what lies in build_dir is not what these sources give; empty if it is."""
    path = build_dir / "build_record.json"
    if not path.is_file():
        return [f"{path.name} is missing in the build folder: build with scripts/build_for_gpu.sh"]
    record = json.loads(path.read_text())
    if record["digest"] != digest:
        return ["the build folder was built from other sources: build again"]
    now = binary_hashes(build_dir)
    changed = sorted(p for p in record["binaries"].keys() | now.keys() if record["binaries"].get(p) != now.get(p))
    return [f"{p} in the build folder is not what the recorded build made" for p in changed]


# ---- The machine -----------------------------------------------------------------------------------------------------


def query_gpu():
    query = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"], capture_output=True, text=True
    )
    if query.returncode != 0 or not query.stdout.strip():
        sys.exit(f"error: nvidia-smi found no GPU: {(query.stdout + query.stderr).strip()}")
    values = [v.strip() for v in query.stdout.splitlines()[0].split(",")]
    return dict(zip((f.replace(".", "_") for f in GPU_FIELDS), values))


def slug(gpu_name):
    """'NVIDIA H200' -> 'h200'"""
    words = re.findall(r"[a-z0-9]+", gpu_name.lower())
    return "-".join(w for w in words if w != "nvidia")


def driver_cuda_version():
    found = re.search(r"CUDA Version:\s*([0-9.]+)", subprocess.run(["nvidia-smi"], capture_output=True, text=True).stdout)
    return found.group(1) if found else None


def build_info(build_dir):
    get = ctypes.CDLL(str(library(build_dir).resolve())).cuflashGetBuildInfo
    get.restype = ctypes.c_char_p
    return get().decode()


def commit():
    if os.environ.get("CUFLASH_COMMIT"):
        return os.environ["CUFLASH_COMMIT"]
    try:
        git = subprocess.run(["git", "-C", str(REPO), "rev-parse", "HEAD"], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return git.stdout.strip() if git.returncode == 0 else None


# ---- The steps -------------------------------------------------------------------------------------------------------

# Variables that change which tests and benchmarks run and with which kernel. lib.sh has the same list.
STEERING_PREFIXES = ("BENCHMARK_", "CUFLASH_", "GTEST_", "TESTBRIDGE_")


def clean_environment(**added):
    """The environment without what the caller's shell may hold to steer a program, and with what is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(STEERING_PREFIXES)}
    return {**kept, **added}


class Log:
    """Runs commands with their output in one file."""

    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("w")

    def run(self, title, command, env):
        """(exit status, output, seconds); prints one line, and the end of the output of a failure."""
        print(f"--- {title}", flush=True)
        start = time.monotonic()
        self.write(f"\n=== {title}: {' '.join(map(str, command))}\n")
        process = subprocess.Popen(
            [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=env,
        )
        lines = []
        for line in process.stdout:  # as it comes: a run that is ended from outside still leaves its log
            self.write(line)
            lines.append(line)
        status = process.wait()
        seconds = round(time.monotonic() - start, 1)
        self.write(f"=== status {status}\n")
        if status != 0:
            print("".join(lines[-60:]))
        print(f"    status {status}, {seconds} s", flush=True)
        return status, "".join(lines), seconds

    def write(self, text):
        self.file.write(text)
        self.file.flush()


def read_report(report):
    """Counts and names from GoogleTest's JSON."""
    tests = [(f"{s['name']}.{t['name']}", t) for s in report["testsuites"] for t in s["testsuite"]]
    ran = [(name, t) for name, t in tests if t.get("status") == "RUN"]
    skipped = [name for name, t in ran if t.get("result") == "SKIPPED"]
    failed = [name for name, t in ran if t.get("failures")]
    disabled = [name for name, t in tests if t.get("status") != "RUN"]
    return {
        "run": len(ran),
        "passed": len(ran) - len(skipped) - len(failed),
        "failed": len(failed),
        "skipped": len(skipped),
        "not_run": len(disabled),
        "failures": failed,
        "skips": skipped,
        "disabled": disabled,
    }


def run_program(log, program, level):
    with tempfile.TemporaryDirectory() as folder:
        report_path = pathlib.Path(folder) / "report.json"
        status, output, seconds = log.run(
            program.name,
            [program, f"--gtest_output=json:{report_path}"],
            clean_environment(CUFLASH_TEST_LEVEL=str(level)),
        )
        report = json.loads(report_path.read_text()) if report_path.is_file() else {"testsuites": []}
    entry = {"level": level, "status": status, **read_report(report)}
    entry["cases"] = sum(int(n) for n in re.findall(r"\bcases: (\d+)", output))
    entry["seconds"] = seconds
    print(f"    {entry['passed']} passed, {entry['failed']} failed, {entry['skipped']} skipped, {entry['cases']} cases")
    return entry


def run_tests(log, build_dir, level, wanted):
    programs = test_programs(build_dir)
    unknown = sorted(set(wanted) - programs.keys())
    if unknown:
        sys.exit(f"error: no such test program: {', '.join(unknown)}; there are {', '.join(programs)}")
    return {name: run_program(log, programs[name], level) for name in wanted or programs}


def run_sanitizers(log, build_dir):
    command = [REPO / "scripts" / "run_compute_sanitizer.sh", "--build-dir", build_dir]
    for tool in SANITIZER_TOOLS:
        command += ["--tool", tool]
    location = {k: v for k, v in os.environ.items() if k == "CUFLASH_COMPUTE_SANITIZER"}  # where the tool lies
    status, output, seconds = log.run("compute-sanitizer", command, clean_environment(**location))
    lines = re.findall(r"^sanitizer (\S+) (\S+): (ok|FAILED).*?, (\d+) tests, (\d+) s$", output, re.MULTILINE)
    runs = [
        {"tool": tool, "program": program, "ok": verdict == "ok", "tests": int(tests), "seconds": int(s)}
        for tool, program, verdict, tests, s in lines
    ]
    error = output.strip().splitlines()[-1] if status == 2 and output.strip() else None
    return {"status": status, "runs": runs, "error": error, "seconds": seconds}


def run_benchmark(log, build_dir, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [benchmark_program(build_dir), "--quick", "--check", "--out", path]
    if commit():
        command += ["--commit", commit()]
    status, _, seconds = log.run("benchmark", command, clean_environment())
    return {"status": status, "file": path.name if path.is_file() else None, "seconds": seconds}


# ---- The record ------------------------------------------------------------------------------------------------------


def earlier_results(record, paths):
    """What earlier calls found out about the same sources, binaries and GPU. Of what several did, the first path counts."""
    found = {}
    for path in reversed(paths):
        if not path.is_file():
            continue
        try:
            earlier = evidence_record.load(path)
        except ValueError as error:
            print(f"    not completing {path}: {error}")
            continue
        same_gpu = all(earlier["gpu"].get(k) == record["gpu"][k] for k in ("name", "driver_version"))
        if same_gpu and all(earlier[k] == record[k] for k in ("digest", "binaries")):
            programs = {**found.get("tests", {}), **earlier.get("tests", {})}
            found.update({k: earlier[k] for k in STEPS if k in earlier})
            if programs:
                found["tests"] = programs
    return found


def run(options):
    start = time.monotonic()
    build_dir = options.build_dir
    gpu = query_gpu()
    hashes = source_digest.file_hashes(REPO)
    record = {
        "schema": SCHEMA,
        "pass": False,
        "problems": [],
        "gpu": gpu,
        "cuda_of_driver": driver_cuda_version(),
        "library": None,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(),
        "digest": source_digest.digest(hashes),
        "binaries": binary_hashes(build_dir),
    }
    name = slug(gpu["name"])
    path = options.out / "verification" / f"{name}.json"
    print(f"{gpu['name']}, driver {gpu['driver_version']}; sources {record['digest']}", flush=True)

    record["problems"] = build_problems(build_dir, record["digest"])
    if not record["problems"]:
        record["library"] = build_info(build_dir)
        record.update(earlier_results(record, [path, REPO / "docs" / "verification" / path.name]))
        log = Log(options.log)
        if "tests" in options.steps:
            record.setdefault("tests", {}).update(run_tests(log, build_dir, options.level, options.program))
        if "sanitizers" in options.steps:
            record["sanitizers"] = run_sanitizers(log, build_dir)
        if "benchmark" in options.steps:
            record["benchmark"] = run_benchmark(log, build_dir, options.out / "performance" / name / "quick.json")
        record["problems"] = evidence_record.problems(record)

    record["pass"] = not record["problems"]
    record["totals"] = evidence_record.totals(record)
    record["seconds"] = round(time.monotonic() - start, 1)
    record["files"] = hashes
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\n{path}: {'PASS' if record['pass'] else 'FAIL'}, {record['totals']}")
    for problem in record["problems"]:
        print(f"  {problem}")
    return 0 if record["pass"] else 1


def steps_list(text):
    steps = text.split(",")
    if not set(steps) <= set(STEPS):
        raise argparse.ArgumentTypeError(f"must be some of {','.join(STEPS)}")
    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("stamp", "run"):
        sub = commands.add_parser(command)
        sub.add_argument("--build-dir", type=pathlib.Path, required=True)
        if command == "stamp":
            sub.add_argument("--expect", required=True)
            continue
        sub.add_argument("--out", type=pathlib.Path, required=True)
        sub.add_argument("--log", type=pathlib.Path, required=True)
        sub.add_argument("--level", type=int, default=1)
        sub.add_argument("--steps", type=steps_list, default=list(STEPS))
        sub.add_argument("--program", action="append", default=[])
    options = parser.parse_args()
    options.build_dir = options.build_dir.resolve()
    if options.command == "stamp":
        stamp(options)
        return 0
    options.out = options.out.resolve()
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
