#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plants faults in the library, one at a time, and expects the tests to notice. Use it through mutation_check.sh.

  lists     checks that every fault of tests/mutations fits the tree: its text is there exactly once
  build     builds one library per fault
  run       runs the tests against each; a fault that no test notices has survived
  evidence  checks that the records in docs/verification/mutations are about these sources and that nothing survived
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import gpu_evidence
import mutation_build
import mutation_faults
import source_digest

REPO = pathlib.Path(__file__).resolve().parent.parent
RECORDS = REPO / "docs" / "verification" / "mutations"
SCHEMA = 1
TIMEOUT = 60  # seconds for one test program: one that takes longer hangs
EMULATED_TIMEOUT = 1500  # for which a program that passes may be too long: it does not count as one that hangs
EMULATED_LEFT_OUT = "*FailToLaunch:*KeysAbove32767*:*ShortEntries"  # tens of thousands of blocks
NOT_RUN = "could not be run"
SERVES_ALL = "register_tiled"  # a kernel
NEEDS_GPU = "needs a GPU"  # the fault is in a file that the emulated device replaces
UNFINISHED = "unfinished"  # on the emulated device, which ends by itself what cannot go on
SANITIZER_FOUND = 97  # exit status


# ---- Running ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Emulation:
    """How a test runs on the emulated device, which checks memory and timing itself: in place of a tool of
    compute-sanitizer, another seed draws other schedules. It is slow: beside the room's kernels only those run that
    serve every case, and no case of tens of thousands of blocks."""

    room: str
    seed: int = 0

    def environment(self, ready):
        library = ready / mutation_build.NO_FAULT / mutation_build.SOME_KERNELS
        kernels = {"CUFLASH_EMULATOR_KERNELS": f"{self.room},{SERVES_ALL}", "LD_PRELOAD": str(library)}
        return {"CUFLASH_EMULATOR_SEED": str(self.seed), **kernels}


def run_test(ready, folder, test, emulation=None):
    """(verdict, test, end of the output). The verdict is passed, failed, crashed, hung, UNFINISHED or NOT_RUN."""
    program, pattern, level, *tool = test
    variables = {}
    if emulation and program.startswith("test_gpu_"):
        tool, pattern = [], f"{pattern}-{EMULATED_LEFT_OUT}"
        variables = emulation.environment(ready)
    mutated = folder / program
    command = [mutated if mutated.is_file() else ready / "programs" / program, f"--gtest_filter={pattern}"]
    if tool:
        command = [sanitizer(), "--tool", *tool, "--error-exitcode", str(SANITIZER_FOUND), *command]
    # The library without a fault serves programs that have the fault themselves.
    paths = [str(folder), str(ready / mutation_build.NO_FAULT), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = gpu_evidence.clean_environment(
        LD_LIBRARY_PATH=":".join(paths), CUFLASH_TEST_LEVEL=str(level), GTEST_FAIL_FAST="1", **variables
    )  # fmt: skip
    process = subprocess.Popen(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=EMULATED_TIMEOUT if variables else TIMEOUT)
        verdict = verdict_of(process.returncode, output)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        verdict = UNFINISHED if variables else "hung" if "[ RUN      ]" in output else NOT_RUN
    return verdict, " under ".join([test_name(program, output, verdict), *tool]), output


def sanitizer():
    cuda = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    places = [os.environ.get("CUFLASH_COMPUTE_SANITIZER"), shutil.which("compute-sanitizer"),
              cuda / "bin" / "compute-sanitizer", cuda / "compute-sanitizer" / "compute-sanitizer"]  # fmt: skip
    found = [place for place in places if place and os.access(place, os.X_OK)]
    return found[0] if found else sys.exit("error: compute-sanitizer not found; CUFLASH_COMPUTE_SANITIZER names it")


def verdict_of(status, output):
    if "[ RUN      ]" not in output:
        return NOT_RUN
    if status == 0:
        return "passed"
    if status == SANITIZER_FOUND:
        return "failed"
    if re.search(r"^\[  FAILED  \] ", output, re.MULTILINE):
        return "failed"
    return "crashed" if status < 0 else NOT_RUN


def test_name(program, output, verdict):
    """The first test that failed; of a program that did not end, the last that began."""
    failed = re.findall(r"^\[  FAILED  \] (\S+\.[\w/]+)", output, re.MULTILINE)
    begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
    name = failed[:1] if verdict == "failed" else begun[-1:]
    return " ".join([program, *name])


def is_emulated(fault):
    return not (REPO / "scripts" / "emulator" / "include" / fault.file.removeprefix("src/")).exists()


def run_mutant(ready, fault, emulated):
    start = time.monotonic()
    entry = {"file": fault.file, "what": fault.what, "verdict": "survived", "by": None}
    if emulated and not is_emulated(fault):
        print(f"    {fault.id}: {NEEDS_GPU}: {fault.file} is not what the emulated device runs", flush=True)
        return fault.id, {**entry, "verdict": NEEDS_GPU}
    for number, test in enumerate(fault.tests * fault.runs):
        emulation = Emulation(fault.room, seed=number) if emulated else None
        verdict, name, output = run_test(ready, ready / fault.room / fault.name, test, emulation)
        if verdict in ("passed", UNFINISHED):
            continue
        entry.update(verdict=verdict, by=name, test=list(test))
        if verdict == NOT_RUN:
            entry["output"] = output[-2000:]
        break
    entry["seconds"] = round(time.monotonic() - start, 1)
    print(f"    {fault.id}: {entry['verdict']}, {entry['by'] or 'no test noticed'}, {entry['seconds']} s", flush=True)
    return fault.id, entry


def run_without_fault(ready, noticed, jobs, emulated):
    """Tests that noticed a fault must pass without one: `noticed` holds (room, test). Returns what is wrong."""

    def run_one(of):
        room, test = of
        return run_test(ready, ready / mutation_build.NO_FAULT, test, Emulation(room) if emulated else None)

    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(run_one, noticed))
    sentences = []
    for (room, test), (verdict, _, output) in zip(noticed, results):
        if verdict == "passed":
            continue
        sentences.append(f"{room}: {' '.join(map(str, test))} does not pass without a fault")
        print(f"    {sentences[-1]}: {verdict}\n{output[-2000:]}")
    return sentences


def noticed_by(entry):
    """The test of the program that noticed the fault, as run_test() takes it: it alone, not all that ran."""
    program, pattern, *rest = entry["test"]
    name = entry["by"].removeprefix(program).split(" under ")[0].strip()
    return (program, name or pattern, *rest)


def problems_of(mutants, wanted, known, emulated=False):
    """Why these results do not show that every wanted fault is caught. Of the known ones, others may be there too. On
    the emulated device faults of the instructions themselves cannot be."""
    found = [f"{name}: was not run" for name in sorted(set(wanted) - mutants.keys())]
    found += [f"{name}: is in no list" for name in sorted(mutants.keys() - set(known))]
    caught = ("failed", "crashed", "hung", *([NEEDS_GPU] if emulated else []))
    return found + [f"{name}: {entry['verdict']}" for name, entry in mutants.items() if entry["verdict"] not in caught]


def completed(path, record):
    """An earlier record of the same sources, with these faults in place of what it says of them."""
    earlier = json.loads(path.read_text())
    if earlier["digest"] != record["digest"]:
        sys.exit(f"error: {path} is of other sources: it cannot be completed")
    again = tuple(f"{name}: " for name in record["mutants"])
    problems = [problem for problem in earlier["problems"] if not problem.startswith(again)] + record["problems"]
    return {
        **earlier, "pass": not problems, "problems": problems, "date": record["date"], "commit": record["commit"],
        "seconds": round(earlier["seconds"] + record["seconds"], 1), "mutants": {**earlier["mutants"], **record["mutants"]},
    }  # fmt: skip


def run(options):
    start = time.monotonic()
    ready = options.build_dir / "ready"
    if not (ready / "build.json").is_file():
        sys.exit(f"error: no {ready / 'build.json'}: nothing was built there")
    built = json.loads((ready / "build.json").read_text())
    hashes = source_digest.file_hashes(REPO)
    if built["digest"] != source_digest.digest(hashes):
        sys.exit("error: the mutants were built from other sources: build again")
    faults = selected_faults(options.room)
    if options.fault:
        faults = [fault for fault in faults if fault.id in options.fault]
        if len(faults) < len(options.fault):
            sys.exit(f"error: not all of {', '.join(options.fault)} are in the lists of {', '.join(options.room)}")
    missing = [fault.id for fault in faults if fault.id not in built["mutants"]]
    if missing:
        sys.exit(f"error: not built: {', '.join(missing)}")
    emulated = built["emulated"]
    if options.fault and options.out and not any(options.out.glob("*.json")):
        sys.exit(f"error: {options.out} holds no record that --fault could complete: run all faults, or leave --out away")
    on_gpu = any(fault.needs_gpu for fault in faults) and not emulated
    if on_gpu and not shutil.which("nvidia-smi"):
        sys.exit("error: nvidia-smi not found: the tests of these rooms need an NVIDIA GPU and its driver")
    gpu = gpu_evidence.query_gpu() if on_gpu else None

    with ThreadPoolExecutor(options.jobs) as pool:
        mutants = dict(pool.map(lambda fault: run_mutant(ready, fault, emulated), faults))
    noticed = sorted({(name.split("/")[0], noticed_by(entry)) for name, entry in mutants.items() if "test" in entry})
    ids = [fault.id for fault in faults]
    problems = problems_of(mutants, ids, ids, emulated)
    problems += run_without_fault(ready, noticed, options.jobs, emulated)

    record = {
        "schema": SCHEMA, "pass": not problems, "problems": problems, "gpu": gpu, "emulated": emulated,
        "rooms": options.room,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": gpu_evidence.commit(), "digest": built["digest"], "seconds": round(time.monotonic() - start, 1),
        "mutants": mutants, "files": hashes,
    }  # fmt: skip
    if options.out:
        name = gpu_evidence.slug(gpu["name"]) if gpu else "emulated_device" if emulated else "host"
        path = options.out / f"{name}.json"
        if options.fault:
            record = completed(path, record)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(f"    {path}")
    print(f"mutation check: {len(mutants)} faults, {len(problems)} problems, {record['seconds']} s")
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


# ---- Evidence --------------------------------------------------------------------------------------------------------


def record_problems(path, hashes, faults):
    try:
        record = json.loads(path.read_text())
        if record["schema"] != SCHEMA:
            return [f"schema {record['schema']} is not {SCHEMA}"]
        mutants, files, found = record["mutants"], record["files"], list(record["problems"])
        digest, emulated = record["digest"], record.get("emulated", False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"is not a record of mutation_check.sh: {error!r}"]
    if digest != source_digest.digest(files):
        found.append("its digest is not that of its own list of files")
    changed = sorted(p for p in files.keys() | hashes.keys() if files.get(p) != hashes.get(p))
    found += [f"{name}: changed since" for name in changed[:20]]
    wanted = [fault.id for fault in faults if fault.needs_gpu]
    return list(dict.fromkeys(found + problems_of(mutants, wanted, [fault.id for fault in faults], emulated)))


def only_on_gpu(path):
    """The faults that this record leaves to a GPU."""
    try:
        mutants = json.loads(path.read_text())["mutants"]
        return sorted(name for name, entry in mutants.items() if entry["verdict"] == NEEDS_GPU)
    except (OSError, ValueError, KeyError, TypeError):
        return []  # record_problems() says so


def evidence(_):
    hashes = source_digest.file_hashes(REPO)
    faults = selected_faults(mutation_faults.rooms_with_lists(REPO))
    records = sorted(RECORDS.glob("*.json"))
    found = {path: record_problems(path, hashes, faults) for path in records}
    for path, sentences in found.items():
        print(f"{path.relative_to(REPO)}: {'does not vouch for these sources' if sentences else 'ok'}")
        print("".join(f"  {sentence}\n" for sentence in sentences), end="")
        print("".join(f"  {name}: only a GPU can show that it is noticed\n" for name in only_on_gpu(path)), end="")
    if not records:
        print("no record in docs/verification/mutations: run scripts/mutation_check.sh, without a GPU with --emulate")
    return 1 if not records or any(found.values()) else 0


# ---- Commands --------------------------------------------------------------------------------------------------------


def selected_faults(rooms):
    return [fault for room in rooms for fault in mutation_faults.load(REPO, room)]


def lists(_):
    problems = mutation_faults.problems(REPO)
    for problem in problems:
        print(problem)
    count = len(selected_faults(mutation_faults.rooms_with_lists(REPO))) if not problems else "?"
    print(f"mutation lists: {count} faults, {len(problems)} problems")
    return 1 if problems else 0


def build(options):
    faults = selected_faults(options.room)
    for fault in faults:
        mutation_faults.mutated_text(REPO, fault)  # a stale fault ends here, before anything is built
    mutation_build.build(REPO, faults, options.build_dir, options.arch, options.jobs)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for function in (lists, build, run, evidence):
        sub = commands.add_parser(function.__name__)
        sub.set_defaults(function=function)
        if function in (build, run):
            sub.add_argument("--build-dir", type=pathlib.Path, required=True)
            sub.add_argument("--room", action="append", choices=mutation_faults.rooms_with_lists(REPO), required=True)
            sub.add_argument("--jobs", type=int, default=os.cpu_count())
        if function is build:
            sub.add_argument("--arch", required=True)
        if function is run:
            sub.add_argument("--out", type=pathlib.Path)
            sub.add_argument("--fault", action="append", default=[])
    options = parser.parse_args()
    if hasattr(options, "build_dir"):
        options.build_dir = options.build_dir.resolve()
    try:
        return options.function(options)
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    sys.exit(main())
