#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts what Nsight Compute measured of one call into profile.json; use it through profile_ncu.sh.

usage: profile_report.py --csv FILE --benchmark NAME --out FILE [OPTION]...
  --csv FILE        of ncu --csv --page raw --print-units base
  --benchmark NAME  what ran: fwd/scalar/fp32/d128/full/b4_h16_s2048/cold
  --out FILE        profile.json; what it holds of other benchmarks on the same GPU and driver stays
  --gpu, --driver, --ncu, --library, --commit, --command TEXT
                    for the record
"""
import argparse
import csv
import datetime
import json
import re
import sys
from pathlib import Path

from report_tables import ReportError, load_record, number, table

SCHEMA = 1
MACHINE_KEYS = ("gpu", "driver", "ncu")
SAME_MACHINE_KEYS = ("gpu", "driver")
# Field: metrics that mean it, the first that was collected counts. A pipe's name differs between GPUs.
METRICS = {
    "duration_us": ("gpu__time_duration.sum",),
    "registers": ("launch__registers_per_thread",),
    "shared_bytes_per_block": ("launch__shared_mem_per_block",),
    "waves": ("launch__waves_per_multiprocessor",),
    "theoretical_occupancy_pct": ("sm__maximum_warps_per_active_cycle_pct",),
    "occupancy_pct": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "sm_throughput_pct": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "memory_throughput_pct": ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",),
    "l1_throughput_pct": ("l1tex__throughput.avg.pct_of_peak_sustained_active",),
    "l2_throughput_pct": ("lts__throughput.avg.pct_of_peak_sustained_elapsed",),
    "dram_throughput_pct": (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "fma_pipe_pct": (
        "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
        "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    ),
    "tensor_pipe_pct": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    ),
    "issue_slots_busy_pct": (
        "sm__inst_issued.avg.pct_of_peak_sustained_active",
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
    ),
    "shared_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
    "shared_bank_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
}
REQUIRED = ("duration_us", "occupancy_pct", "sm_throughput_pct", "memory_throughput_pct")
# Warps in each state per issue; their shares are those of a warp's time.
STALL_PATTERNS = (
    re.compile(r"smsp__average_warps_issue_stalled_(?!\w+_not_issued_)(\w+)_per_issue_active\.ratio"),
    re.compile(r"smsp__average_warp_latency_issue_stalled_(\w+)\.ratio"),
    re.compile(r"smsp__pcsamp_warps_issue_stalled_(?!\w+_not_issued)(\w+)"),
)
MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}  # nsecond and so on in some versions
TOP_STALLS = 4


def number_of(text):
    """A value as ncu prints it, 1,234.5 say; None for n/a and text."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def read_rows(text):
    """(units, one dict per launch) of a raw page, which other output of ncu and the program may surround."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    if not rows or "Kernel Name" not in rows[0]:
        errors = [line for line in text.splitlines() if "ERROR" in line]
        raise ReportError(errors[0] if errors else "no launch was profiled")
    units = rows.pop(0) if not rows[0]["ID"] else {}
    return units, rows


def one_call(rows):
    """The launches up to the first that comes again: those of one call."""
    seen, kept = set(), []
    for row in rows:
        launch = (row["Kernel Name"], row["Grid Size"], row["Block Size"])
        if launch in seen:
            break
        seen.add(launch)
        kept.append(row)
    return kept


def short_name(kernel):
    """'void cuflash::scalar::fwd_kernel<float, 64>(cuflash::FwdArgs)' -> 'fwd_kernel'"""
    path = re.match(r"[\w:\s]*", re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", kernel))[0]
    return path.split("::")[-1].split()[-1]


def rounded(value):
    """Three decimals; counts as integers."""
    return int(value) if value == int(value) else round(value, 3)


def stalls(row):
    """{reason: share of the warps' time}, largest first; 'selected' is a warp that issues."""
    for pattern in STALL_PATTERNS:
        found = {match[1]: number_of(value) for name, value in row.items() if (match := pattern.fullmatch(name or ""))}
        found = {reason: value for reason, value in found.items() if value}
        if found:
            total = sum(found.values())
            ordered = sorted(found.items(), key=lambda item: -item[1])
            return {reason: round(value / total, 4) for reason, value in ordered}
    return {}


def value_of(field, row, units):
    for metric in METRICS[field]:
        value = number_of(row.get(metric) or "")
        if value is None:
            continue
        if field == "duration_us":
            value *= MICROSECONDS[(units.get(metric) or "ns").removesuffix("econd")]
        return rounded(value)
    return None


def launches(text):
    """What the record says of each launch of one call."""
    units, rows = read_rows(text)
    result = []
    for row in one_call(rows):
        values = {field: value_of(field, row, units) for field in METRICS}
        missing = [field for field in REQUIRED if values[field] is None]
        if missing:
            raise ReportError(f"{row['Kernel Name']}: ncu did not report {', '.join(missing)}")
        result.append(
            {
                "kernel": short_name(row["Kernel Name"]),
                "grid": row["Grid Size"],
                "block": row["Block Size"],
                **values,
                "stalls": stalls(row),
            }
        )
    return result


def load(path):
    """The content of profile.json; None if there is none."""

    def touch(content):
        for run in content["runs"]:
            run["benchmark"], run["commit"], [launch["kernel"] for launch in run["launches"]]

    return load_record(path, SCHEMA, "profile_ncu.sh", touch)


def merged(old, machine, run):
    """The content with this run; it replaces that of the same benchmark."""
    runs = []
    if old is not None and all(old["machine"].get(key) == machine[key] for key in SAME_MACHINE_KEYS):
        runs = [other for other in old["runs"] if other["benchmark"] != run["benchmark"]]
    return {"schema": SCHEMA, "machine": machine, "runs": [*runs, run]}


def title(benchmark):
    """'fwd/scalar/fp32/d128/full/b4_h16_s2048/cold' -> 'fwd scalar fp32 d128 full b4_h16_s2048'"""
    return " ".join(benchmark.split("/")[:6])


def stall_text(found):
    return ", ".join(f"{reason} {100 * share:.0f}" for reason, share in list(found.items())[:TOP_STALLS])


def launch_row(launch):
    def cell(field):
        return "" if launch[field] is None else number(launch[field])

    theory = cell("theoretical_occupancy_pct")
    occupancy = cell("occupancy_pct") + (f" of {theory}" if theory else "")
    fields = ("sm_throughput_pct", "memory_throughput_pct", "l1_throughput_pct", "l2_throughput_pct",
              "dram_throughput_pct", "fma_pipe_pct", "tensor_pipe_pct", "issue_slots_busy_pct")  # fmt: skip
    conflicts, wavefronts = launch["shared_bank_conflicts"], launch["shared_wavefronts"]
    share = "" if conflicts is None or not wavefronts else number(100 * conflicts / wavefronts)
    numbers = (cell("duration_us"), cell("registers"), occupancy, *map(cell, fields), share)
    return (launch["kernel"], stall_text(launch["stalls"]), *numbers)


def section(content):
    """The lines of the performance page."""
    machine = content["machine"]
    lines = [
        "## profile.json",
        "",
        f"Nsight Compute {machine['ncu']}, driver {machine['driver']}: the launches of one call each. Durations are "
        "those under the profiler, with cold caches.",
    ]
    header = ["launch", "a warp's time, %", "µs", "registers", "occupancy, %", "SM, %", "memory, %", "L1, %", "L2, %",
              "DRAM, %", "FMA, %", "tensor, %", "issue, %", "bank conflicts, % of wavefronts"]  # fmt: skip
    for run in sorted(content["runs"], key=lambda run: run["benchmark"].split("/")[0] != "fwd"):
        rows = [launch_row(launch) for launch in run["launches"]]
        lines += ["", f"### {title(run['benchmark'])}", "", f"Commit {run['commit']}.", "", *table(header, rows, 2)]
    return lines


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--benchmark", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, required=True, help=argparse.SUPPRESS)
    for name in (*MACHINE_KEYS, "library", "commit", "command"):
        parser.add_argument(f"--{name}", default="unknown", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        run = {
            "benchmark": options.benchmark,
            "commit": options.commit,
            "library": options.library,
            "started": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "command": options.command,
            "launches": launches(options.csv.read_text(encoding="utf-8", errors="replace")),
        }
        machine = {key: getattr(options, key) for key in MACHINE_KEYS}
        content = merged(load(options.out), machine, run)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except (ReportError, OSError) as error:
        print(f"profile_report.py: {options.benchmark}: {error}", file=sys.stderr)
        return 1
    for launch in run["launches"]:
        print(f"    {launch['kernel']}: {launch['duration_us']:.1f} us, SM {launch['sm_throughput_pct']:.0f} %, "
              f"occupancy {launch['occupancy_pct']:.0f} %; {stall_text(launch['stalls'])}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
