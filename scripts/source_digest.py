#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The digest of the sources that GPU evidence depends on: what a record in docs/verification/ was measured with.

usage: source_digest.py [--root DIR] [--files]
  --root DIR  the source tree; by default the one that holds this script
  --files     one line "sha256  path" per file instead of the digest

Needs no git and no network. Covered are the library, the tests and benchmarks, the build files, and the scripts that
build, run and record. Not covered: Markdown (tables of results are written after a run) and tests/packaging (runs
without a GPU, and not in a record).
"""
import argparse
import hashlib
import pathlib

COVERED = (
    "CMakeLists.txt",
    "benchmarks",
    "cmake",
    "include",
    "scripts/build_for_gpu.sh",
    "scripts/evidence_record.py",
    "scripts/gpu_evidence.py",
    "scripts/lib.sh",
    "scripts/run_compute_sanitizer.sh",
    "scripts/source_digest.py",
    "scripts/verify_gpu.sh",
    "src",
    "tests",
)
SKIPPED_FOLDER = pathlib.PurePath("tests/packaging")
SKIPPED_SUFFIXES = {".md", ".pyc"}


def is_covered(root, path):
    relative = path.relative_to(root)
    skipped = SKIPPED_FOLDER in relative.parents or "__pycache__" in relative.parts or path.suffix in SKIPPED_SUFFIXES
    return path.is_file() and not skipped


def file_hashes(root):
    """{relative path: sha256} of all covered files, sorted by path."""
    root = pathlib.Path(root)
    found = []
    for entry in COVERED:
        path = root / entry
        found += [path] if path.is_file() else path.rglob("*")
    covered = sorted((p for p in found if is_covered(root, p)), key=lambda p: p.as_posix())
    return {p.relative_to(root).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in covered}


def digest(hashes):
    """One sha256 over all paths and contents."""
    lines = "".join(f"{value}  {path}\n" for path, value in sorted(hashes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=here)
    parser.add_argument("--files", action="store_true")
    options = parser.parse_args()
    hashes = file_hashes(options.root)
    if options.files:
        for path, value in hashes.items():
            print(f"{value}  {path}")
    else:
        print(digest(hashes))


if __name__ == "__main__":
    main()
