# SPDX-License-Identifier: MIT
"""What a record in docs/verification/ holds, and when it is a proof. gpu_evidence.py writes records and
check_evidence.py reads them. Both judge them with problems(), so that a record's own verdict alone counts for nothing.
"""
import json

SCHEMA = 1
STEPS = ("tests", "sanitizers", "benchmark")
SANITIZER_TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")
COUNTS = ("run", "passed", "failed", "skipped", "not_run", "cases")

# The shape of a record: a type, [shape of each], {str: shape of each}, {key: shape}, or a tuple of alternatives.
TEST_ENTRY = {
    "level": int, "status": int, "failures": [str], "skips": [str], "disabled": [str], **{key: int for key in COUNTS},
}  # fmt: skip
SANITIZER_RUN = {"tool": str, "program": str, "ok": bool, "tests": int}
RECORD = {
    "schema": int, "pass": bool, "problems": [str], "gpu": {str: str}, "digest": str, "binaries": {str: str},
    "files": {str: str}, "totals": {key: int for key in COUNTS},
}  # fmt: skip
STEP_SHAPES = {
    "tests": {str: TEST_ENTRY},
    "sanitizers": {"status": int, "runs": [SANITIZER_RUN], "error": (str, None)},
    "benchmark": {"status": int, "file": (str, None)},
}


# ---- Reading ---------------------------------------------------------------------------------------------------------


def shape_error(value, shape, where):
    """What part of a value has the wrong shape, in one sentence, or None."""
    if isinstance(shape, tuple):
        errors = [shape_error(value, alternative, where) for alternative in shape]
        return None if None in errors else errors[0]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where} is not a list"
        parts = [(v, shape[0], f"{where}[{i}]") for i, v in enumerate(value)]
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{where} is not an object"
        missing = [key for key in shape if key is not str and key not in value]
        if missing:
            return f"{where} has no '{missing[0]}'"
        wanted = {key: shape[str] for key in value} if str in shape else shape
        parts = [(value[key], part, f"{where}.{key}") for key, part in wanted.items()]
    elif shape is None:
        return None if value is None else f"{where} is not null"
    else:
        # A JSON true is no number, though Python's bool is an int.
        fits = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
        return None if fits else f"{where} is not of type {shape.__name__}"
    return next((error for error in (shape_error(*part) for part in parts) if error), None)


def load(path):
    """The record in a file. Raises ValueError with one sentence if there is none of this schema."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot be read: {error}") from error
    error = shape_error(record, {"schema": int}, "the record")
    if error is None and record["schema"] != SCHEMA:
        error = f"schema {record['schema']} is not {SCHEMA}"
    steps = {step: shape for step, shape in STEP_SHAPES.items() if error is None and step in record}
    error = error or shape_error(record, {**RECORD, **steps}, "the record")
    if error:
        raise ValueError(error)
    return record


# ---- Judging ---------------------------------------------------------------------------------------------------------


def programs(record):
    """The GPU test programs of the build that the record is about."""
    names = (path.rsplit("/", 1)[-1] for path in record["binaries"] if path.startswith("tests/"))
    return sorted(name for name in names if name.startswith("test_gpu_"))


def totals(record):
    return {key: sum(entry[key] for entry in record.get("tests", {}).values()) for key in COUNTS}


def test_problems(name, entry):
    found = []
    if entry["status"] != 0 or entry["failed"] or entry["failures"]:
        found.append(f"{name}: status {entry['status']}, {entry['failed']} failed")
    elif entry["passed"] <= 0:
        found.append(f"{name}: no test passed")
    if entry["skipped"] or entry["skips"]:
        found.append(f"{name}: {entry['skipped']} skipped: {', '.join(entry['skips'])}")
    if entry["not_run"] or entry["disabled"]:
        found.append(f"{name}: {entry['not_run']} not run: {', '.join(entry['disabled'])}")
    if entry["level"] < 1:
        found.append(f"{name}: level {entry['level']} is less than 1")
    if entry["run"] != entry["passed"] + entry["failed"] + entry["skipped"]:
        found.append(f"{name}: its counts do not add up")
    return found


def sanitizer_problems(step, known):
    if not step["runs"]:
        return [f"sanitizers: {step['error'] or 'were not run'}"]
    bad = [f"{run['tool']} {run['program']}" for run in step["runs"] if not run["ok"] or run["tests"] <= 0]
    found = [f"sanitizers: {', '.join(bad)}"] if bad else []
    if step["status"] != 0 and not bad:
        found.append(f"sanitizers: status {step['status']}" + (f", {step['error']}" if step["error"] else ""))
    for program in sorted({run["program"] for run in step["runs"]}):
        tools = [run["tool"] for run in step["runs"] if run["program"] == program]
        if program not in known:
            found.append(f"sanitizers: {program} is not in the build")
        if sorted(tools) != sorted(SANITIZER_TOOLS):
            found.append(f"sanitizers: {program} ran under {', '.join(tools)}, not once under each of "
                         f"{', '.join(SANITIZER_TOOLS)}")  # fmt: skip
    return found


def benchmark_problems(step):
    if step["status"] != 0:
        return [f"benchmark: status {step['status']}"]
    return [] if step["file"] else ["benchmark: wrote no file"]


def problems(record):
    """Why this record is no proof, from its measurements alone; empty if it is one."""
    known = programs(record)
    tests = record.get("tests", {})
    found = [] if known else ["there are no test programs"]
    found += [f"{name}: was not run" for name in known if name not in tests]
    found += [f"{name}: is not in the build" for name in sorted(tests) if name not in known]
    for name in sorted(tests):
        found += test_problems(name, tests[name])
    found += sanitizer_problems(record["sanitizers"], known) if "sanitizers" in record else ["sanitizers: were not run"]
    found += benchmark_problems(record["benchmark"]) if "benchmark" in record else ["benchmark: was not run"]
    return found
