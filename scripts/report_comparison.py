# SPDX-License-Identifier: MIT
"""The part of the performance pages that comes from comparison.json, the record of benchmarks/compare_torch.py."""
import math
from dataclasses import dataclass

from report_tables import load_record, number, table, unique

SCHEMA = 1
OPERATIONS = {"fwd": "Forward", "bwd": "Backward"}
# Columns in this order; other libraries follow as they come. naive is a baseline, no peer.
PEERS = ("cudnn", "flash2", "flash3", "mem_efficient")
MACHINE_ROWS = {
    "gpu": "GPU",
    "driver": "driver",
    "cuda": "CUDA of PyTorch",
    "torch": "PyTorch",
    "cudnn": "cuDNN",
    "method": "method",
}
SHAPE_KEYS = ("head_dim", "causal", "batch", "heads", "heads_k", "seqlen_q", "seqlen_k")


@dataclass(frozen=True)
class Point:
    """What a plot needs of a record."""

    kernel: str
    mask: str
    head_dim: str
    seqlen: int
    rate: float


def load(path):
    """The content of comparison.json; None if there is none."""

    def touch(content):
        for run in content["sets"].values():
            run["commit"], run["started"], run["command"], run["library"]
            for one in run["records"]:
                problem_of(one), one["tflops"], one["error"], label(one)

    return load_record(path, SCHEMA, "compare_torch.py", touch)


def problem_of(one):
    return (one["op"], one["dtype"], *(one[key] for key in SHAPE_KEYS))


def label(one):
    return one["kernel"] if one["library"] == "cuflash" else one["library"]


def mask(one):
    return "causal" if one["causal"] else "full"


def shape(one):
    heads = f"h{one['heads']}" + (f"_hk{one['heads_k']}" if one["heads_k"] != one["heads"] else "")
    rows = f"s{one['seqlen_q']}" if one["seqlen_q"] == one["seqlen_k"] else f"q{one['seqlen_q']}_k{one['seqlen_k']}"
    return f"b{one['batch']}_{heads}_{rows}"


def contestants(found):
    """Labels in the order of the columns: cuflash's kernels, peers, the rest."""

    def place(one):
        if one["library"] == "cuflash":
            return 0
        return 1 + PEERS.index(one["library"]) if one["library"] in PEERS else 1 + len(PEERS)

    return unique(label(one) for one in sorted(found, key=place))


def problems(found):
    """[records of one problem by label], sorted by head_dim, mask and length."""
    grouped = {}
    for one in found:
        grouped.setdefault(problem_of(one), {})[label(one)] = one

    def order(by_label):
        one = next(iter(by_label.values()))
        return (one["head_dim"], one["causal"], one["heads"] != one["heads_k"], one["seqlen_k"], one["batch"])

    return sorted(grouped.values(), key=order)


def chosen(by_label):
    """The record of the kernel that dispatch chooses; None if it was not measured."""
    return next((one for one in by_label.values() if one.get("chosen")), None)


def best_peer(by_label):
    """The fastest of the fused kernels of other libraries; None if none took part."""
    found = [one for one in by_label.values() if one["library"] in PEERS]
    return max(found, key=lambda one: one["tflops"], default=None)


def ratio(one, other):
    return one["tflops"] / other["tflops"] if one and other and other["tflops"] else None


def text_of(value):
    return "" if value is None else number(value)


# What dispatch's choice is compared with: of each problem the best peer, or one contestant.
REFERENCES = {
    "best peer": best_peer,
    "flash2": lambda by_label: by_label.get("flash2"),
    "flash3": lambda by_label: by_label.get("flash3"),
    "scalar": lambda by_label: by_label.get("scalar"),
}


def references(columns):
    return [name for name in REFERENCES if name == "best peer" or name in columns]


def problem_row(by_label, columns):
    first, own = next(iter(by_label.values())), chosen(by_label)
    cells = []
    for column in columns:
        one = by_label.get(column)
        rate = text_of(one and one["tflops"])
        cells.append(f"**{rate}**" if one and one is own else rate)
    ratios = [ratio(own, REFERENCES[name](by_label)) for name in references(columns)]
    return (str(first["head_dim"]), mask(first), shape(first), *cells, *map(text_of, ratios))


def mean_lines(found):
    """How the choice of dispatch compares with peers over all problems."""
    lines = []
    for name in ("best peer", "flash2", "flash3"):
        ratios = [ratio(chosen(by_label), REFERENCES[name](by_label)) for by_label in problems(found)]
        ratios = [value for value in ratios if value]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines += ["", f"Choice over {name}: geometric mean {number(mean)}, lowest {number(min(ratios))}."]
    return lines


def error_table(found):
    """The largest error of each contestant."""
    groups = unique((one["op"], one["dtype"]) for one in found)
    rows = []
    for column in contestants(found):
        cells = []
        for group in groups:
            errors = [one["error"] for one in found if label(one) == column and (one["op"], one["dtype"]) == group]
            broken = any(error is None for error in errors)
            cells.append("not finite" if broken else f"{max(errors):.1e}" if errors else "")
        rows.append((column, *cells))
    return ["", "Largest relative error:", "", *table(["", *(" ".join(group) for group in groups)], rows, 1)]


def of_group(found, operation, dtype):
    return [one for one in found if (one["op"], one["dtype"]) == (operation, dtype)]


def groups(run):
    """(operation, dtype, records) of a set."""
    for operation, dtype in unique((one["op"], one["dtype"]) for one in run["records"]):
        yield operation, dtype, of_group(run["records"], operation, dtype)


def plot_name(name, operation, dtype):
    return f"comparison_{name}_{operation}_{dtype}.svg"


def points(found):
    """For the plot: square shapes of equal heads, if they span several lengths."""
    chosen_ones = [
        Point(label(one), mask(one), f"d{one['head_dim']}", one["seqlen_k"], one["tflops"])
        for one in found
        if one["seqlen_q"] == one["seqlen_k"] and one["heads"] == one["heads_k"] and one["tflops"] > 0
    ]
    return chosen_ones if len({point.seqlen for point in chosen_ones}) > 1 else []


def plots(content):
    """(file name, title, points) of every plot."""
    for name, run in content["sets"].items():
        for operation, dtype, found in groups(run):
            if points(found):
                title = f"{content['machine']['gpu']}: {OPERATIONS[operation].lower()}, {dtype}"
                yield plot_name(name, operation, dtype), title, points(found)


def versions(run):
    """'flash3 at commit 0251105a' of each library that is not PyTorch's and says so."""
    found = unique((one["library"], one["version"]) for one in run["records"] if "version" in one)
    return [f"{library} at commit {version}" for library, version in found]


def set_section(name, run):
    lines = [f"### Set {name}", "", f"Commit {run['commit']}, {run['started']}, `{run['command']}`."]
    lines += [f"Of another source: {', '.join(versions(run))}."] if versions(run) else []
    if run.get("matmul_tflops"):
        ceilings = ", ".join(f"{dtype} {number(rate)}" for dtype, rate in run["matmul_tflops"].items())
        lines.append(f"Matrix product of the same run, TFLOP/s: {ceilings}.")
    for operation, dtype, found in groups(run):
        columns = contestants(found)
        ratios = [f"choice / {name}" for name in references(columns)]
        header = ["head_dim", "mask", "shape", *columns, *ratios]
        rows = [problem_row(by_label, columns) for by_label in problems(found)]
        title = f"{OPERATIONS[operation]}, {dtype}"
        lines += ["", f"#### {title}: TFLOP/s", "", *table(header, rows, 3), *mean_lines(found)]
        if points(found):
            lines += ["", f"![{title}: TFLOP/s by sequence length]({plot_name(name, operation, dtype)})"]
    if run["records"]:
        lines += error_table(run["records"])
    if run.get("skipped"):
        lines += ["", "Left out:", ""]
        lines += [f"- {reason} ({len(names)} cases)" for reason, names in run["skipped"].items()]
    return lines


def section(content):
    rows = [(name, str(content["machine"][key])) for key, name in MACHINE_ROWS.items() if key in content["machine"]]
    lines = ["## comparison.json", "", *table(("", ""), rows, 2), "", "Bold: the kernel that dispatch chooses."]
    for name, run in content["sets"].items():
        lines += ["", *set_section(name, run)]
    return lines


def longest(found):
    """Of each operation, dtype, head_dim and mask the problem with the most keys; grouped heads aside."""
    kept = {}
    for by_label in problems(found):
        one = next(iter(by_label.values()))
        if one["heads"] == one["heads_k"]:
            kept[one["op"], one["dtype"], one["head_dim"], one["causal"]] = by_label  # problems() ascends in length
    return list(kept.values())


def summary_rows(run):
    rows = []
    for by_label in longest(run["records"]):
        own, peer = chosen(by_label), best_peer(by_label)
        if own and peer:
            text = (OPERATIONS[own["op"]].lower(), own["dtype"], str(own["head_dim"]), mask(own), shape(own))
            rates = (own["kernel"], number(own["tflops"]), label(peer), number(peer["tflops"]))
            rows.append((*text, *rates, number(ratio(own, peer))))
    return rows


def summary(content):
    """For README.md: dispatch's choice and the best peer at the longest shapes, each dtype from the first set that has it."""
    lines, shown = [], set()
    header = ["operation", "dtype", "head_dim", "mask", "shape", "cuflash", "TFLOP/s", "best peer", "TFLOP/s", "ratio"]
    for name in ("grid", "fp32", "baseline"):
        run = content["sets"].get(name)
        rows = [row for row in summary_rows(run) if row[1] not in shown] if run else []
        shown |= {row[1] for row in rows}
        if rows:
            peers = " and ".join([f"PyTorch {content['machine']['torch']}'s kernels", *versions(run)])
            lines += ["", f"Against the best of {peers} in one run, commit {run['commit'][:7]}:", ""]
            lines += table(header, rows, 5)
    return lines
