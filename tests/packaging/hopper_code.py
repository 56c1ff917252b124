#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the kernels of the Hopper room are made of what they are there for: products of warpgroups on tensor
cores, and tensor copies to shared memory and from it.

usage: hopper_code.py --cuobjdump PROGRAM OBJECT...

Ends with 77 if there is no such program.
"""
import argparse
import re
import shutil
import subprocess
import sys

SKIPPED = 77
EVERYWHERE = {"HGMMA": "products of warpgroups", "UTMALDG": "tensor copies to shared memory"}
WANTED = {
    "fwd_kernel": EVERYWHERE | {"UTMASTG": "tensor copies from shared memory"},
    "bwd_kernel": EVERYWHERE | {"UBLKRED": "sums from shared memory"},
}


def kernels_of(cuobjdump, path):
    """(name, machine code) of each kernel of an object."""
    result = subprocess.run([cuobjdump, "-sass", path], capture_output=True, text=True, check=True)
    return [part.split("\n", 1) for part in re.split(r"Function : ", result.stdout)[1:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuobjdump", required=True)
    parser.add_argument("objects", nargs="+")
    options = parser.parse_args()
    cuobjdump = shutil.which(options.cuobjdump)
    if cuobjdump is None:
        print("SKIPPED: no cuobjdump, which the CUDA Toolkit has")
        return SKIPPED
    seen, problems = 0, 0
    for path in options.objects:
        for name, code in kernels_of(cuobjdump, path):
            kernel = next((kernel for kernel in WANTED if kernel in name), None)
            if kernel is None:
                continue
            seen += 1
            for instruction, what in WANTED[kernel].items():
                if not re.search(rf"\b{instruction}\b", code):
                    print(f"{name.strip()}: no {instruction}: {what}")
                    problems += 1
    print(f"{seen} kernels, {problems} problems")
    return 1 if problems or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
