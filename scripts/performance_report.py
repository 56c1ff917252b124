#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the performance pages from the records of cuflash_bench, compare_torch.py and profile_ncu.sh.

Reads docs/performance/<gpu>/*.json, and writes docs/performance/<gpu>/README.md, plots beside it, and the table between
<!-- performance:begin --> and <!-- performance:end --> in README.md. Tables need nothing but Python, plots matplotlib.
comparison.json is compare_torch.py's, profile.json profile_ncu.sh's; every other JSON file is cuflash_bench's.
"""
import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import profile_report
import report_comparison
from report_plots import draw
from report_tables import ReportError, natural, number, table, unique

BEGIN = "<!-- performance:begin -->"
END = "<!-- performance:end -->"
OPERATIONS = {"fwd": "Forward", "bwd": "Backward"}
DTYPES = ("bf16", "fp16", "fp32")
CONTEXT_ROWS = {
    "gpu": "GPU",
    "compute_capability": "compute capability",
    "num_sms": "SMs",
    "driver": "driver",
    "cuda_toolkit": "CUDA Toolkit",
    "cublas": "cuBLAS",
    "sm_clock_mhz_max": "SM clock, highest, MHz",
    "memory_clock_mhz_max": "memory clock, highest, MHz",
    "power_limit_w": "power limit, W",
    "library": "library",
    "commit": "commit",
    "started": "date",
    "command": "command",
}


@dataclass(frozen=True)
class Attention:
    """One measured call: fwd/scalar/bf16/d128/causal/b4_h16_s4096/cold."""

    operation: str
    kernel: str
    dtype: str
    head_dim: str
    mask: str
    shape: str
    temperature: str
    run: dict

    @property
    def problem(self):
        return (self.head_dim, self.mask, self.shape, self.temperature)

    @property
    def seqlen(self):
        """Of a square shape; None for others."""
        match = re.fullmatch(r"b\d+_h\d+_s(\d+)", self.shape)
        return int(match[1]) if match else None

    @property
    def rate(self):
        return self.run["TFLOP/s"]


@dataclass
class Record:
    name: str  # of the file, without .json
    context: dict
    attention: list
    ceilings: list
    overheads: list
    failed: list


@dataclass
class Gpu:
    """All that is recorded of one GPU."""

    records: list  # of cuflash_bench
    comparison: dict  # or None
    profile: dict  # or None

    @property
    def name(self):
        if self.records:
            return self.records[0].context["gpu"]
        return (self.comparison or self.profile)["machine"]["gpu"]


def parse_attention(run):
    parts = run["name"].split("/")
    if len(parts) != 7 or parts[0] not in OPERATIONS or parts[2] not in DTYPES:
        raise ReportError(f"{run['name']}: not a benchmark that this script knows")
    return Attention(*parts, run)


def load_record(path):
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        record = Record(path.stem, content["context"], [], [], [], [])
        missing = [key for key in ("gpu", "commit", "started", "command") if key not in record.context]
        if missing:
            raise ReportError(f"context lacks {', '.join(missing)}")
        for run in content["benchmarks"]:
            if run.get("error_occurred"):
                record.failed.append(run)
            elif run["name"].startswith("ceiling/"):
                record.ceilings.append(run)
            elif run["name"].startswith("overhead/"):
                record.overheads.append(run)
            else:
                record.attention.append(parse_attention(run))
    except (ValueError, KeyError, TypeError, ReportError) as error:
        raise ReportError(f"{path}: not a record of cuflash_bench: {error}") from error
    return record


def load_gpu(folder):
    """The quick set, which is there to be repeated often, is the last record."""
    others = {"comparison.json", "profile.json"}
    records = [load_record(path) for path in sorted(folder.glob("*.json")) if path.name not in others]
    return Gpu(
        sorted(records, key=lambda record: record.name.startswith("quick")),
        report_comparison.load(folder / "comparison.json"),
        profile_report.load(folder / "profile.json"),
    )


def context_section(context):
    rows = [(label, context[key]) for key, label in CONTEXT_ROWS.items() if key in context]
    return table(("", ""), rows, 2)


def ceiling_section(ceilings):
    rows = []
    for run in ceilings:
        what = run["name"].split("/", 1)[1].replace("matmul/", "matrix product, ")
        rate = f"{number(run['TFLOP/s'])} TFLOP/s" if "TFLOP/s" in run else f"{number(run['GB/s'])} GB/s"
        rows.append((what, rate, number(run["real_time"]), f"{run['samples']:.0f}"))
    return ["### Ceilings", "", *table(("what", "rate", "median, ms", "samples"), rows, 1)]


def overhead_section(overheads):
    rows = []
    for run in overheads:
        _, what, kernel = run["name"].split("/")
        if run["time_unit"] != "us":
            raise ReportError(f"{run['name']}: time unit {run['time_unit']}, expected us")
        extra = [number(run[key]) if key in run else "" for key in ("empty_launch_us", "on_top_us")]
        rows.append((what, kernel, number(run["real_time"]), *extra))
    header = ("what", "kernel", "median, µs", "empty launch, µs", "on top of it, µs")
    return ["### Host overhead", "", *table(header, rows, 2)]


def attention_table(runs):
    kernels = unique(run.kernel for run in runs)
    by_problem = {}
    for run in runs:
        by_problem.setdefault(run.problem, {})[run.kernel] = run
    units = (("TFLOP/s", "TFLOP/s"), ("real_time", "ms"), ("%matmul", "% of product"))
    units = [(key, label) for key, label in units if any(key in run.run for run in runs)]
    header = ["head_dim", "mask", "shape", "L2"] + [f"{kernel}, {label}" for _, label in units for kernel in kernels]
    rows = []
    for problem in sorted(by_problem, key=lambda p: [natural(part) for part in p]):
        cells = []
        for key, _ in units:
            for kernel in kernels:
                run = by_problem[problem].get(kernel)
                cells.append(number(run.run[key]) if run and key in run.run else "")
        rows.append((problem[0].removeprefix("d").replace("_v", ", v "), *problem[1:], *cells))
    return table(header, rows, 4)


def error_lines(runs):
    """The largest error of each kernel, if the record was made with --check."""
    lines = []
    for kernel in unique(run.kernel for run in runs):
        errors = [run.run["rel_error"] for run in runs if run.kernel == kernel and "rel_error" in run.run]
        if errors:
            lines.append(f"- {kernel}: {max(errors):.1e} over {len(errors)} calls")
    return ["", "Largest relative error against the host kernel:", "", *lines] if lines else []


def plot_name(record, operation, dtype):
    return f"{record.name}_{operation}_{dtype}.svg"


def plotted(runs):
    """Cold runs of square shapes, if they span more than one length."""
    points = [run for run in runs if run.temperature == "cold" and run.seqlen is not None]
    return points if len({run.seqlen for run in points}) > 1 else []


def groups(record):
    for operation in OPERATIONS:
        for dtype in DTYPES:
            runs = [run for run in record.attention if (run.operation, run.dtype) == (operation, dtype)]
            if runs:
                yield operation, dtype, runs


def record_section(record):
    lines = [f"## {record.name}.json", "", *context_section(record.context)]
    if record.ceilings:
        lines += ["", *ceiling_section(record.ceilings)]
    if record.overheads:
        lines += ["", *overhead_section(record.overheads)]
    for operation, dtype, runs in groups(record):
        title = f"{OPERATIONS[operation]}, {dtype}"
        lines += ["", f"### {title}", "", *attention_table(runs), *error_lines(runs)]
        if plotted(runs):
            lines += ["", f"![{title}: TFLOP/s by sequence length]({plot_name(record, operation, dtype)})"]
    if record.failed:
        lines += ["", "### Failed", ""]
        lines += [f"- {run['name']}: {run.get('error_message', 'no message')}" for run in record.failed]
    return lines


def gpu_page(gpu):
    lines = [
        "<!-- SPDX-License-Identifier: MIT -->",
        "<!-- Written by scripts/performance_report.py from the JSON files beside it. -->",
        f"# {gpu.name}",
        "",
        "Medians. How it is measured and what the columns mean: [../README.md](../README.md).",
    ]
    if gpu.comparison:
        lines += ["", *report_comparison.section(gpu.comparison)]
    if gpu.profile:
        lines += ["", *profile_report.section(gpu.profile)]
    for record in gpu.records:
        lines += ["", *record_section(record)]
    return "\n".join(lines) + "\n"


def longest(runs):
    """Per operation, dtype, head_dim and mask the cold runs of the longest square shape."""
    chosen = {}
    for run in runs:
        if run.temperature != "cold" or run.seqlen is None:
            continue
        key = (run.operation, run.dtype, run.head_dim, run.mask)
        best = chosen.get(key, [])
        if not best or run.seqlen > best[0].seqlen:
            chosen[key] = [run]
        elif run.shape == best[0].shape:
            best.append(run)
    return chosen


def summary_order(key):
    operation, dtype, head_dim, mask = key
    return (DTYPES.index(dtype), list(OPERATIONS).index(operation), natural(head_dim), mask != "full", natural(mask))


def overhead_sentence(record):
    for run in record.overheads:
        if run["name"] == "overhead/call/auto":
            return [
                "",
                f"A call costs the host {number(run['real_time'])} µs, of which an empty launch is "
                f"{number(run['empty_launch_us'])} µs.",
            ]
    return []


def summary(gpu, record):
    context = record.context
    chosen = longest(record.attention)
    kernels = unique(run.kernel for runs in chosen.values() for run in runs)
    rows = []
    for key in sorted(chosen, key=summary_order):
        operation, dtype, head_dim, mask = key
        rates = {run.kernel: number(run.rate) for run in chosen[key]}
        cells = [rates.get(kernel, "") for kernel in kernels]
        rows.append((OPERATIONS[operation].lower(), dtype, head_dim[1:], mask, chosen[key][0].shape, *cells))
    date = context["started"][:10]
    page = f"docs/performance/{gpu}/README.md"
    source = f"{context['gpu']}, commit {context['commit'][:7]}, {date}"
    if not rows:
        return [f"{source}: [all numbers]({page}).", *overhead_sentence(record)]
    return [
        f"{source}. TFLOP/s, median with cold L2 ([all numbers]({page})):",
        "",
        *table(["operation", "dtype", "head_dim", "mask", "shape", *kernels], rows, 5),
        *overhead_sentence(record),
    ]


def readme_block(gpus):
    if not gpus:
        return f"{BEGIN}\nNothing has been recorded yet.\n{END}"
    lines = []
    for name, gpu in gpus.items():
        if gpu.records:
            newest = max(gpu.records, key=lambda record: record.context["started"])
            lines += summary(name, newest)
        else:
            lines += [f"{gpu.name}: [all numbers](docs/performance/{name}/README.md)."]
        if gpu.comparison:
            lines += report_comparison.summary(gpu.comparison)
        lines += [""]
    return "\n".join([BEGIN, *lines[:-1], END])


def with_block(text, block):
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        raise ReportError(f"README.md must hold {BEGIN} and after it {END}, once each")
    return text[: text.index(BEGIN)] + block + text[text.index(END) + len(END) :]


def plots(folder, gpu):
    """(path, title, runs) of every plot that the pages show."""
    if gpu.comparison:
        for name, title, points in report_comparison.plots(gpu.comparison):
            yield folder / name, title, points
    for record in gpu.records:
        for operation, dtype, runs in groups(record):
            if plotted(runs):
                title = f"{record.context['gpu']}: {OPERATIONS[operation].lower()}, {dtype}"
                yield folder / plot_name(record, operation, dtype), title, plotted(runs)


def pages(root, gpus):
    """Path and content of every file that the records determine."""
    readme = root / "README.md"
    yield readme, with_block(readme.read_text(encoding="utf-8"), readme_block(gpus))
    for name, gpu in gpus.items():
        yield root / "docs" / "performance" / name / "README.md", gpu_page(gpu)


def check(root, gpus):
    """Names of the files that are not what the records give."""
    stale = []
    for path, content in pages(root, gpus):
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            stale.append(path)
    for name, gpu in gpus.items():
        stale += [path for path, _, _ in plots(root / "docs" / "performance" / name, gpu) if not path.exists()]
    return [str(path.relative_to(root)) for path in stale]


def write(root, gpus, with_plots):
    for path, content in pages(root, gpus):
        path.write_text(content, encoding="utf-8")
        print(f"wrote {path.relative_to(root)}")
    if not with_plots:
        return
    for name, gpu in gpus.items():
        for path, title, runs in plots(root / "docs" / "performance" / name, gpu):
            draw(path, title, runs)
            print(f"wrote {path.relative_to(root)}")


def load_gpus(root):
    folders = sorted(path for path in (root / "docs" / "performance").glob("*") if path.is_dir())
    gpus = {folder.name: load_gpu(folder) for folder in folders}
    return {name: gpu for name, gpu in gpus.items() if gpu.records or gpu.comparison or gpu.profile}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    parser.add_argument("--no-plots", action="store_true", help="write tables only")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the repository")
    options = parser.parse_args(arguments)
    try:
        gpus = load_gpus(options.root)
        if options.check:
            stale = check(options.root, gpus)
            for path in stale:
                print(f"{path} is not what the records give: run scripts/performance_report.py", file=sys.stderr)
            return 1 if stale else 0
        write(options.root, gpus, not options.no_plots)
        return 0
    except (ReportError, OSError) as error:
        print(f"performance_report.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
