#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the records in docs/verification/ with the sources. Use it through check_evidence.sh.

Good is: at least one record, and the measurements in each show that everything ran and passed with exactly the sources
that lie here.
"""
import argparse
import pathlib
import sys

import evidence_record
import source_digest

MAX_NAMED = 20


def differences(recorded, now):
    """'src/a.cpp: changed' and so on for all files that differ."""
    found = []
    for path in sorted(recorded.keys() | now.keys()):
        if path not in now:
            found.append(f"{path}: removed since")
        elif path not in recorded:
            found.append(f"{path}: added since")
        elif recorded[path] != now[path]:
            found.append(f"{path}: changed since")
    return found


def check_record(path, now):
    """Sentences that say what is wrong with one record."""
    try:
        record = evidence_record.load(path)
    except ValueError as error:
        return [f"is not a record of verify_gpu.sh: {error}"]
    recorded, digest = record["files"], record["digest"]
    found = list(dict.fromkeys(record["problems"] + evidence_record.problems(record)))
    if not record["pass"]:
        found.insert(0, "did not pass")
    if record["totals"] != evidence_record.totals(record):
        found.append("its totals are not the sums of its tests")
    if digest != source_digest.digest(recorded):
        found.append("its digest is not that of its own list of files")
    changed = differences(recorded, now)
    found += changed[:MAX_NAMED]
    if len(changed) > MAX_NAMED:
        found.append(f"and {len(changed) - MAX_NAMED} files more")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    now = source_digest.file_hashes(root)
    records = sorted((root / "docs" / "verification").glob("*.json"))
    if not records:
        print("no record in docs/verification: run scripts/verify_gpu.sh on a machine with a GPU")
        return 1
    wrong = {path: check_record(path, now) for path in records}
    for path, sentences in wrong.items():
        print(f"{path.relative_to(root)}: {'does not vouch for these sources' if sentences else 'ok'}")
        for sentence in sentences:
            print(f"  {sentence}")
    if any(wrong.values()):
        print("run scripts/verify_gpu.sh on that GPU again and commit its record")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
