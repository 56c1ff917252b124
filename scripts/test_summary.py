#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sums up a CTest run: counts, why tests were skipped, and which failed.

usage: test_summary.py JUNIT_FILE    (what ctest --output-junit wrote)
"""
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict

# What test programs print where they cannot run: SKIPPED: reason
REASON = re.compile(r"^SKIPPED: (.*)$", re.MULTILINE)


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    passed, failed, skipped = [], [], defaultdict(list)
    for case in ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        if status == "run":
            passed.append(name)
        elif status == "fail":
            failed.append(name)
        else:
            reason = REASON.search(case.findtext("system-out") or "")
            skip = case.find("skipped")
            skipped[reason.group(1) if reason else (skip.get("message") if skip is not None else status)].append(name)
    count_skipped = sum(map(len, skipped.values()))
    print(f"{len(passed)} passed, {len(failed)} failed, {count_skipped} skipped")
    for reason, names in skipped.items():
        print(f"skipped ({reason}): {' '.join(names)}")
    if failed:
        print(f"failed: {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
