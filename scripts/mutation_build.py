# SPDX-License-Identifier: MIT
"""Builds what mutation_check.py runs: the library without a fault, the test programs, and one library (or test
program) per fault. A mutant differs from the library without a fault in the few objects that are recompiled for it.
"""
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import mutation_faults
import source_digest

# What a configured tree consists of, and what source_digest covers.
TREE = ("CMakeLists.txt", "LICENSE", "README.md", "benchmarks", "cmake", "include", "scripts", "src", "tests")
LIBRARY = "libcuflash.so.0"
EMULATED_RUNTIME = "libcudart_emulated.so"
SOME_KERNELS = "libsome_kernels.so"
NO_FAULT = "none"
EMULATED = "emulated"  # instead of a list of architectures: for the device of scripts/emulator


def options_of_a_real_build(architectures):
    return [f"-DCMAKE_CUDA_ARCHITECTURES={architectures}", "-DCUFLASH_BUILD_TESTS=ON", "-DCUFLASH_BUILD_BENCHMARKS=OFF",
            "-DCUFLASH_BUILD_EXAMPLES=OFF", "-DCUFLASH_INSTALL=OFF"]  # fmt: skip


def execute(command, cwd=None):
    result = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{shlex.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def copy_tree(root, to, how=shutil.copy2):
    """A copy that keeps times, so that a build folder of an earlier copy stays valid."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for name in TREE:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, to / name, copy_function=how, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.is_file():
            how(source, to / name)


class BaseBuild:
    """The build without a fault: what is compiled, and how each object and output is made."""

    def __init__(self, tree, folder, architectures, jobs):
        self.tree, self.folder, self.jobs = tree, folder, jobs
        emulated = architectures == EMULATED
        execute([
            "cmake", "-S", tree / "scripts" / "emulator" if emulated else tree, "-B", folder, "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release", *([] if emulated else options_of_a_real_build(architectures)),
        ])  # fmt: skip
        self.commands = json.loads((folder / "compile_commands.json").read_text())

    def build(self, targets):
        command = ["cmake", "--build", self.folder, "--parallel", str(self.jobs), "--target", *targets]
        if subprocess.run(command).returncode != 0:
            sys.exit("error: the library without a fault does not build")

    def library(self):
        return (self.folder / "src" / "libcuflash.so").resolve()

    def program(self, name):
        return self.folder / "tests" / ("gpu" if name.startswith("test_gpu_") else "host") / name

    def unit(self, ending):
        """(object, command) of the one source whose path ends so; the object's path is relative to the folder."""
        found = [c for c in self.commands if c["file"].endswith(f"/{ending}")]
        if len(found) != 1:
            raise RuntimeError(f"{len(found)} sources of the build end in /{ending}")
        command = shlex.split(found[0]["command"])
        return command[command.index("-o") + 1], command

    def output_of(self, objects):
        """What these objects are linked into: the library, or a test program."""
        outputs = {
            self.library() if name.startswith("src/") else self.program(name.split("CMakeFiles/")[1].split(".dir/")[0])
            for name in objects
        }
        if len(outputs) != 1:
            raise RuntimeError(f"{', '.join(objects)} belong to {len(outputs)} outputs")
        return outputs.pop()

    def link_command(self, output):
        listing = execute(["ninja", "-C", self.folder, "-t", "commands", output.relative_to(self.folder.resolve())])
        line = listing.strip().splitlines()[-1]
        return shlex.split(line.removeprefix(": && ").removesuffix(" && :"))


def build_mutant(base, fault, work, to):
    """Compiles the fault's units from a tree that has the fault, links, and leaves the stripped result in `to`."""
    tree = work / "tree"
    copy_tree(base.tree, tree, how=os.link)
    mutation_faults.plant(base.tree, fault, tree)
    replaced = {}
    for number, ending in enumerate(fault.units):
        name, command = base.unit(ending)
        replaced[name] = str(work / f"{number}.o")
        command = [replaced.get(c, c.replace(str(base.tree), str(tree))) for c in command]
        execute(command, cwd=base.folder)
    output = base.output_of(replaced)
    to.mkdir(parents=True)
    result = to / (LIBRARY if output == base.library() else output.name)
    link = [replaced.get(c, c) for c in base.link_command(output)]
    link[link.index("-o") + 1] = str(result)
    execute([*link, "-s"], cwd=base.folder)
    shutil.rmtree(work)
    return result


def build(root, faults, build_dir, architectures, jobs):
    work, ready = build_dir / "work", build_dir / "ready"
    shutil.rmtree(ready, ignore_errors=True)
    copy_tree(root, work / "tree")
    folder = work / ("build_emulated" if architectures == EMULATED else "build")
    base = BaseBuild(work / "tree", folder, architectures, jobs)
    programs = sorted({test[0] for fault in faults for test in fault.tests})
    base.build(["cuflash", *programs])

    (ready / NO_FAULT).mkdir(parents=True)
    execute(["strip", "-o", ready / NO_FAULT / LIBRARY, base.library()])
    if architectures == EMULATED:
        base.build(["some_kernels"])
        for library in (EMULATED_RUNTIME, SOME_KERNELS):
            execute(["strip", "-o", ready / NO_FAULT / library, base.folder / library])
    (ready / "programs").mkdir()
    for program in programs:
        execute(["strip", "-o", ready / "programs" / program, base.program(program)])

    def one(fault):
        result = build_mutant(base, fault, work / "mutants" / fault.room / fault.name, ready / fault.room / fault.name)
        print(f"    {fault.id}: {result.name}, {result.stat().st_size >> 10} KiB", flush=True)
        return fault.id, hashlib.sha256(result.read_bytes()).hexdigest()

    shutil.rmtree(work / "mutants", ignore_errors=True)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            hashes = dict(pool.map(one, faults))
        except RuntimeError as error:
            pool.shutdown(cancel_futures=True)
            sys.exit(f"error: {error}")
    control = hashlib.sha256((ready / NO_FAULT / LIBRARY).read_bytes()).hexdigest()
    unchanged = sorted(name for name, value in hashes.items() if value == control)
    if unchanged:
        sys.exit(f"error: no different from the library without a fault: {', '.join(unchanged)}")
    digest = source_digest.digest(source_digest.file_hashes(work / "tree"))
    record = {"digest": digest, "emulated": architectures == EMULATED, "mutants": hashes}
    (ready / "build.json").write_text(json.dumps(record, indent=1) + "\n")
    size = sum(path.stat().st_size for path in ready.rglob("*") if path.is_file())
    print(f"    {len(hashes)} mutants, {size >> 20} MiB in {ready}")
