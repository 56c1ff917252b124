#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares cuflash with the attention kernels of PyTorch, in one process, and writes comparison.json.

usage: benchmarks/compare_torch.py --set fp32|baseline|ladder|grid|all [OPTION]...

Contestants are cuflash's kernels through its C interface, the cuDNN, flash (FlashAttention-2) and memory-efficient
kernels behind PyTorch's scaled_dot_product_attention, an unfused computation (naive), and with --flash3
FlashAttention-3. They are launched in turn, each time with a cold L2, so that their ratios hold whatever the clocks do.
docs/performance/README.md says how it is done.

Needs an NVIDIA GPU, PyTorch with CUDA, and a built libcuflash. Ends with 1 if a result is wrong.
"""
import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from peers import cases, machine, records  # noqa: E402
from peers.flash3_library import Flash3, Flash3Error  # noqa: E402
from peers.library import CuflashError, Library  # noqa: E402

METHOD = (
    "CUDA events around each launch, a written buffer of at least 4 x L2 and 256 MiB before it, warm-up of 20 ms or 10 "
    "launches, contestants in turn, median; inputs standard normal; TF32 off; error: largest relative L2 error of the "
    "outputs against fp64 over the first and the last (batch, key head)"
)
MAX_REASON = 160  # PyTorch has long sentences
LIBRARIES = ("cuflash", "cudnn", "flash2", "flash3", "mem_efficient", "naive")


class UsageError(Exception):
    """Something that the caller has to mend."""


def first_line(error):
    return str(error).splitlines()[0][:MAX_REASON]


class Comparison:
    """Measures cases one after the other; keeps what the cases share."""

    def __init__(self, options, library, flash3):
        from peers import cuflash_calls, flash3_calls, measure, references, torch_calls

        self.cuflash_calls, self.flash3_calls, self.torch_calls = cuflash_calls, flash3_calls, torch_calls
        self.references = references
        self.options, self.library, self.flash3 = options, library, flash3
        self.timer = measure.Timer()
        self.prepared = (None, None, None)  # problem, inputs, reference: forward and backward share them
        self.skipped = {}  # "library: reason" -> names of cases

    def prepare(self, case):
        problem = replace(case, op="fwd")
        if self.prepared[0] != problem:
            self.prepared = (None, None, None)  # before the next ones are allocated
            inputs = self.torch_calls.random_inputs(case)
            self.prepared = (problem, inputs, self.references.reference(case, *inputs))
        return self.prepared

    def skip(self, case, contestant, reason):
        self.skipped.setdefault(f"{contestant}: {reason}", []).append(case.name())

    def cuflash_kernels(self, case, wanted):
        """Variants to measure; wanted: names, None for all that accept."""
        variant = cases.Variant
        chosen, others = self.library.rooms(case)
        names = [chosen] if wanted is None or "auto" in wanted else []
        if wanted is None:
            too_much = "scalar" in others and case.flops > 1e9 * self.options.scalar_gflop
            if too_much:
                self.skip(case, "cuflash/scalar", f"left out above {self.options.scalar_gflop:g} GFLOP")
            names += [name for name in others if not (name == "scalar" and too_much)]
        else:
            names += [name for name in wanted if name not in ("auto", "deterministic", *names)]
        found = [variant(name, chosen=name == chosen) for name in names]
        if wanted and "deterministic" in wanted and case.op == "bwd":
            found.append(variant(self.library.deterministic_room(case), deterministic=True))
        return found

    def why_not(self, name, case):
        """Why a library other than cuflash does not take part; None if it does."""
        import torch

        if name == "flash3":
            return self.flash3.why_not(case)
        return self.torch_calls.why_not(name, case, torch.cuda.mem_get_info()[0])

    def peer(self, name, case, inputs):
        if name == "flash3":
            return self.flash3_calls.contestant(self.flash3, case, inputs)
        return self.torch_calls.fastest_layout(name, case, inputs, self.timer)

    def contestants(self, case, libraries, kernels):
        import torch

        forward_case, inputs, _ = self.prepare(case)
        for variant in self.cuflash_kernels(case, kernels) if "cuflash" in libraries else ():
            try:
                yield self.cuflash_calls.contestant(self.library, case, inputs, variant, forward_case)
            except (CuflashError, torch.cuda.OutOfMemoryError) as error:
                self.skip(case, f"cuflash/{variant.label()}", first_line(error))
        for name in libraries:
            if name == "cuflash":
                continue
            reason = self.why_not(name, case)
            if reason is None:
                try:
                    yield self.peer(name, case, inputs)
                except RuntimeError as error:  # the kernel does not serve the case, or memory is short
                    reason = first_line(error)
            if reason is not None:
                self.skip(case, name, reason)

    def error_of(self, contestant):
        outputs = {name: contestant.view(tensor) for name, tensor in contestant.launch().items()}
        return self.references.relative_error(self.prepared[2], outputs)

    def measure(self, case, libraries, kernels):
        """The records of a case; none if memory runs out."""
        import torch

        try:
            return self.measure_all(case, libraries, kernels)
        except torch.cuda.OutOfMemoryError as error:
            self.skip(case, "all", first_line(error))
        self.prepared = (None, None, None)  # here, where the exception no longer holds what it met
        torch.cuda.empty_cache()
        return []

    def measure_all(self, case, libraries, kernels):
        found = {one.name: one for one in self.contestants(case, libraries, kernels)}
        if not found:
            return []
        errors = {name: self.error_of(one) for name, one in found.items()}
        launches = {name: one.launch for name, one in found.items()}
        times = self.timer.interleaved(launches, self.options.samples, self.options.max_seconds)
        return [
            records.record(case, one.library, one.kernel, times[name], errors[name], **one.more)
            for name, one in found.items()
        ]


def ceilings(comparison, dtypes):
    """TFLOP/s of the matrix product, {dtype: rate}."""
    from peers.measure import matmul_ceiling

    types = comparison.torch_calls.TORCH_DTYPES
    return {dtype: round(matmul_ceiling(comparison.timer, types[dtype]), 1) for dtype in dtypes}


def label(one):
    name = one["kernel"] if one["library"] == "cuflash" else one["library"]
    return f"{name}{'*' if one.get('chosen') else ''} {one['tflops']:.4g}"


def print_ratios(found, library):
    """How each of cuflash's kernels compares with a library, by case and over all cases of an operation."""
    ratios = {}
    for key, kernel, ours, theirs in records.rates_against(found, library):
        case = cases.Case(*key)
        ratios.setdefault((case.op, kernel), []).append(ours / theirs)
        print(f"{case.name():34} {kernel:15} {ours:7.4g} / {library} {theirs:7.4g} = {ours / theirs:.3f}")
    for (operation, kernel), values in ratios.items():
        mean, lowest = records.geometric_mean(values), min(values)
        print(f"{operation} {kernel} / {library}: geometric mean {mean:.3f}, lowest {lowest:.3f}, {len(values)} cases")


def libraries_of(options, name):
    """Whom a set compares: flash3 only if there is one."""
    return options.libraries or [one for one in cases.SET_LIBRARIES[name] if one != "flash3" or options.flash3]


def run_set(comparison, options, name, selected):
    libraries = libraries_of(options, name)
    kernels = options.kernels or cases.SET_KERNELS[name]
    start = time.monotonic()
    comparison.skipped = {}
    run = {
        "commit": machine.commit(),
        "library": comparison.library.build_info(),
        "started": machine.utc_now(),
        "command": machine.command_line(options.arguments),
        "samples": options.samples,
        "max_seconds": options.max_seconds,
        "matmul_tflops": ceilings(comparison, sorted({case.dtype for case in selected})),
    }
    print(f"{name}: {len(selected)} cases; matrix product, TFLOP/s: {run['matmul_tflops']}; * is dispatch's choice")
    found, wrong = [], 0
    for number, case in enumerate(selected, 1):
        measured = comparison.measure(case, libraries, kernels)
        found += measured
        print(f"[{number:2}/{len(selected)}] {case.name():34} {'  '.join(map(label, measured))}", flush=True)
        for one in measured:
            if problem := records.wrong(one):
                wrong += 1
                print(f"        WRONG: {one['library']}/{one['kernel']}: {problem}", flush=True)
    for library in ("flash2", "flash3"):
        print_ratios(found, library)
    for reason, names in comparison.skipped.items():
        print(f"left out, {len(names)} cases: {reason}")
    run["seconds"] = round(time.monotonic() - start, 1)
    run["skipped"] = comparison.skipped
    run["records"] = found
    print(f"{name}: {len(found)} records in {run['seconds']} s", flush=True)
    return run, wrong


def selected_cases(options, name):
    masks = options.mask and set(options.mask)
    return cases.select(cases.SETS[name](), options.op, options.dtype, options.head_dim, masks)


def is_selection(options):
    """Whether only a part of a set is measured, which must not replace a whole one."""
    return any((options.op, options.dtype, options.head_dim, options.mask, options.libraries, options.kernels))


def comma_list(convert, allowed=None):
    def parse(text):
        values = [convert(part) for part in text.split(",")]
        if allowed and (unknown := [value for value in values if value not in allowed]):
            raise argparse.ArgumentTypeError(f"{unknown[0]}: must be of {', '.join(map(str, allowed))}")
        return values

    return parse


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--set", required=True, choices=[*cases.SETS, "all"], help="which cases")
    add("--library", type=Path, metavar="PATH", help="libcuflash.so; by default that in build-gpu/src or build/src")
    add("--flash3", type=Path, metavar="PATH", help="libflash3.so of peers/flash3/build.sh: compare with it too")
    add("--out", type=Path, metavar="FILE", help="by default docs/performance/<gpu>/comparison.json")
    add("--samples", type=int, default=30, metavar="N", help="launches of each contestant at most (default 30)")
    add("--max-seconds", type=float, default=1.0, metavar="S", help="time for the launches of a case (default 1)")
    add("--scalar-gflop", type=float, default=700, metavar="N",
        help="without --kernels, leave scalar, which is slow, out of cases with more work (default 700)")  # fmt: skip
    part = parser.add_argument_group("a part of a set; then nothing is written unless --out is given").add_argument
    part("--libraries", type=comma_list(str, LIBRARIES), metavar="LIST", help=f"of {', '.join(LIBRARIES)}")
    part("--kernels", type=comma_list(str), metavar="LIST",
         help="auto (dispatch's choice), deterministic (its choice for repeatable gradients) and names; by default auto "
         "and all that accept, in grid auto, cp_async and deterministic")  # fmt: skip
    part("--op", type=comma_list(str, cases.OPERATIONS), metavar="LIST", help="of fwd, bwd")
    part("--dtype", type=comma_list(str, cases.DTYPES), metavar="LIST", help="of fp32, fp16, bf16")
    part("--head-dim", type=comma_list(int), metavar="LIST", help="64,128 say")
    part("--mask", type=comma_list(str, ("full", "causal")), metavar="LIST", help="of full, causal")
    options = parser.parse_args(arguments)
    options.arguments = arguments
    return options


def load_torch():
    try:
        import torch
    except ImportError as error:
        raise UsageError("PyTorch is needed: pip install torch") from error
    if not torch.cuda.is_available():
        raise UsageError("PyTorch finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


def open_library(given):
    if "CUFLASH_KERNEL" in os.environ:
        raise UsageError("CUFLASH_KERNEL is set: it would replace dispatch's choice; unset it")
    path = machine.find_library(given)
    if path is None:
        raise UsageError(f"{given or 'libcuflash.so'} not found: build it, or name it with --library")
    return Library(path.resolve())


def open_flash3(options):
    """FlashAttention-3; None if it is not asked for."""
    if options.flash3 is None and "flash3" in (options.libraries or ()):
        raise UsageError("flash3 is no part of PyTorch: name its library with --flash3")
    return options.flash3 and Flash3(options.flash3.resolve())


def check_kernel_names(library, wanted):
    known = {"auto", "deterministic"} | {info.name.decode() for op in cases.OPERATIONS for info in library.kernels(op)}
    if unknown := [name for name in wanted or () if name not in known]:
        raise UsageError(f"--kernels: there is no {unknown[0]}; there are {', '.join(sorted(known))}")


def compare(options):
    library = open_library(options.library)
    check_kernel_names(library, options.kernels)
    flash3 = open_flash3(options)
    torch = load_torch()
    described = {**machine.describe(torch), "method": METHOD}
    out = options.out
    if out is None and not is_selection(options):
        out = machine.REPO / "docs" / "performance" / machine.slug(described["gpu"]) / "comparison.json"
    content = records.load(out) if out else None
    print(f"{described['gpu']}, driver {described['driver']}, PyTorch {described['torch']}, {library.build_info()}")
    wrong = 0
    with torch.no_grad():
        comparison = Comparison(options, library, flash3)
        for name in cases.SETS if options.set == "all" else [options.set]:
            run, wrong_here = run_set(comparison, options, name, selected_cases(options, name))
            wrong += wrong_here
            if out:
                content = records.merged(content, described, {name: run})
                records.save(out, content)
                print(f"wrote {out}")
    return 1 if wrong else 0


def main(arguments):
    options = parse_options(arguments)
    try:
        return compare(options)
    except (UsageError, records.RecordError, CuflashError, Flash3Error, OSError) as error:
        print(f"compare_torch.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
