# SPDX-License-Identifier: MIT
"""comparison.json: its records, and how a run of one set is put into it."""
import json
import math

from peers.schedule import median

SCHEMA = 1
CASE_KEYS = ("op", "dtype", "head_dim", "causal", "batch", "heads", "heads_k", "seqlen_q", "seqlen_k")
# What must be equal for sets of different runs to stay in one file.
MACHINE_KEYS = ("gpu", "compute_capability", "driver", "cuda", "torch", "cudnn")
# Largest relative L2 error that rounding explains, with room for 16-bit scores of the unfused computation.
ERROR_LIMITS = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 4e-2}


class RecordError(Exception):
    """A record that does not fit the file, or a file that is none."""


def record(case, library, kernel, samples_ms, error, **more):
    ms = median(samples_ms)
    return {
        **case.fields(),
        "library": library,
        "kernel": kernel,
        "ms": round(ms, 6),
        "tflops": round(case.flops / ms * 1e-9, 3),
        "error": float(f"{error:.3g}") if math.isfinite(error) else None,
        "min_ms": round(min(samples_ms), 6),
        "samples": len(samples_ms),
        **more,
    }


def wrong(one):
    """Why a record's error is not one that rounding explains; None if it is."""
    limit = ERROR_LIMITS[one["dtype"]]
    if one["error"] is None:
        return "the result holds values that are not finite"
    return f"relative error {one['error']:.2e} is above {limit:.0e}" if one["error"] > limit else None


def rates_against(found, library):
    """(case key, kernel, its TFLOP/s, the library's) of cuflash's kernels where the library takes part."""
    theirs = {case_key(one): one["tflops"] for one in found if one["library"] == library}
    return [
        (case_key(one), one["kernel"], one["tflops"], theirs[case_key(one)])
        for one in found
        if one["library"] == "cuflash" and theirs.get(case_key(one))
    ]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def case_key(one):
    return tuple(one[key] for key in CASE_KEYS)


def merged(old, machine, runs):
    """The content of the file after a run: its sets replace those of the same name. Others stay if they come from the
    same machine and software, with the commit and time of their own run; ratios hold within one set only."""
    kept = {}
    if old is not None and all(old["machine"].get(key) == machine.get(key) for key in MACHINE_KEYS):
        kept = {name: run for name, run in old["sets"].items() if name not in runs}
    return {"schema": SCHEMA, "machine": machine, "sets": {**kept, **runs}}


def load(path):
    """The file's content; None if there is none yet."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise RecordError(f"{path}: schema {content['schema']}, expected {SCHEMA}")
        for run in content["sets"].values():
            for one in run["records"]:
                case_key(one)
        return content
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: not a record of compare_torch.py: {error!r}") from error


def save(path, content):
    """One line per record, so that a diff shows which changed."""
    head = {key: content[key] for key in ("schema", "machine")}
    lines = json.dumps(head, indent=2).removesuffix("\n}").splitlines() + ['  "sets": {']
    lines[-2] += ","
    for number, (name, run) in enumerate(content["sets"].items()):
        fields = {key: value for key, value in run.items() if key != "records"}
        text = json.dumps(fields, indent=2).removesuffix("\n}").splitlines()
        lines.append(f"    {json.dumps(name)}: {{")
        lines += [f"    {line}" for line in text[1:]]
        lines[-1] += ","
        rows = [f"        {json.dumps(one)}" for one in run["records"]]
        lines += ['      "records": [', ",\n".join(rows), "      ]"] if rows else ['      "records": []']
        lines.append("    }" + ("," if number + 1 < len(content["sets"]) else ""))
    lines += ["  }", "}"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
