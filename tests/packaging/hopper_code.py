#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the kernels of the Hopper room are made of what they are there for: products of warpgroups on tensor
cores, and tensor copies to shared memory and from it. And that the innermost loops that hold products move few numbers
from registers to uniform ones (R2UR): where ptxas does not see that a ring's position is the same in all lanes, it
moves the descriptor of each product, and the step waits for it. And that multiply-adds of the forward pass find an
operand in the operand cache (.reuse): registers that they read are taken from the products.

usage: hopper_code.py --cuobjdump PROGRAM [--list] OBJECT...
  --list   also prints the number of moves of each kernel, and of multiply-adds

Ends with 77 if there is no such program.
"""
import argparse
import collections
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
# The most moves of a kernel, by its row in the table of tiles; --list says how many there are. Without an entry, any
# number will do. The forward pass has 1, and 24 or more if descriptors are moved.
MOST_MOVES = {
    "fwd_kernel": {0: 4, 1: 4, 2: 4},
    "bwd_kernel": {0: 4, 1: 12, 2: 4},
}
# The least share of multiply-adds in loops of products that reuse an operand, of kernels without softcap and ALiBi: 0.77
# to 0.85; 0.03 to 0.20 where the shifts of a lane's rows lie in one bank, which costs 8 % of the time.
LEAST_REUSE = {"fwd_kernel": 0.6}
PLAIN = re.compile(r"Li\d+ELb1E")  # of a template: its tile row, then whether it is plain

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", re.MULTILINE)
# @P0 BRA 0x300: predicate, operation, target. A branch may have its predicate behind its name, too: BRA.U !UP0, 0x300.
PARTS = re.compile(r"(@!?U?P\w+\s+)?(\w+)\S*(.*)")
ROW = re.compile(r"Li(\d+)E")  # the first number among a kernel's template arguments
REUSING = "FFMA with .reuse"


def kernels_of(cuobjdump, path):
    """(name, machine code) of each kernel of an object."""
    result = subprocess.run([cuobjdump, "-sass", path], capture_output=True, text=True, check=True)
    return [part.split("\n", 1) for part in re.split(r"Function : ", result.stdout)[1:]]


# ---- Loops -----------------------------------------------------------------------------------------------------------


def blocks_of(code):
    """(operations, successors) of each basic block; the first is the kernel's entry."""
    instructions = [(int(address, 16), *PARTS.match(text).groups()) for address, text in INSTRUCTION.findall(code)]
    index_of = {address: index for index, (address, *_) in enumerate(instructions)}
    starts, ends = {0}, {}  # of blocks; ends: where control goes from an instruction that ends one
    for index, (_, predicate, operation, operands) in enumerate(instructions):
        if operation not in ("BRA", "EXIT", "RET"):
            continue
        target = re.search(r"0x[0-9a-f]+", operands) if operation == "BRA" else None
        conditional = predicate or (operation == "BRA" and re.search(r"\bU?P\d", operands))
        following = [index_of.get(int(target.group(), 16))] if target else []
        following += [index + 1] if conditional else []
        ends[index] = [next_ for next_ in following if next_ is not None and next_ < len(instructions)]
        starts |= {*ends[index], index + 1}
    starts = sorted(start for start in starts if start < len(instructions))
    number = {start: block for block, start in enumerate(starts)}
    blocks = []
    for start, end in zip(starts, [*starts[1:], len(instructions)]):
        following = ends.get(end - 1, [end] if end < len(instructions) else [])
        operations = collections.Counter(operation for _, _, operation, _ in instructions[start:end])
        operations[REUSING] = sum(op == "FFMA" and ".reuse" in operands for _, _, op, operands in instructions[start:end])
        blocks.append((operations, [number[next_] for next_ in following]))
    return blocks


def loops_of(blocks):
    """{head: all blocks} of the loops: those of which every pass goes through the head."""
    before = collections.defaultdict(list)
    for block, (_, following) in enumerate(blocks):
        for next_ in following:
            before[next_].append(block)
    everything = (1 << len(blocks)) - 1
    dominators = [1] + [everything] * (len(blocks) - 1)  # sets as bits: what every way to a block goes through
    changed = True
    while changed:
        changed = False
        for block in range(1, len(blocks)):
            common = everything
            for previous in before[block]:
                common &= dominators[previous]
            changed |= dominators[block] != common | 1 << block
            dominators[block] = common | 1 << block
    loops = {}
    for block, (_, following) in enumerate(blocks):
        for head in following:
            if before[block] and dominators[block] >> head & 1:
                body, left = loops.setdefault(head, {head}), [block]
                while left:
                    member = left.pop()
                    if member not in body:
                        body.add(member)
                        left += before[member]
    return loops


def product_loops(code):
    """How many innermost loops hold products, and their operations."""
    blocks = blocks_of(code)
    loops = {
        head: body for head, body in loops_of(blocks).items() if any(blocks[block][0]["HGMMA"] for block in body)
    }
    innermost = [body for body in loops.values() if not any(other < body for other in loops.values())]
    return len(innermost), sum((blocks[block][0] for block in set().union(*innermost)), collections.Counter())


# ---- Checks ----------------------------------------------------------------------------------------------------------


def problems_of(kernel, name, code, list_moves):
    for instruction, what in WANTED[kernel].items():
        if not re.search(rf"\b{instruction}\b", code):
            yield f"no {instruction}: {what}"
    loops, operations = product_loops(code)
    moves, multiply_adds, reusing = operations["R2UR"], operations["FFMA"], operations[REUSING]
    if loops == 0:
        yield "no loop holds products"
    if list_moves:
        print(f"{name}: {moves} moves to uniform registers in {loops} loops; {reusing} of {multiply_adds} FFMA reuse")
    most = MOST_MOVES[kernel].get(int(ROW.search(name).group(1)))
    if most is not None and moves > most:
        yield f"{moves} moves to uniform registers (R2UR) in loops of products, above {most}"
    least = LEAST_REUSE.get(kernel, 0) * multiply_adds
    if PLAIN.search(name) and reusing < least:
        yield f"{reusing} of {multiply_adds} multiply-adds in loops of products reuse an operand, fewer than {least:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuobjdump", required=True)
    parser.add_argument("--list", action="store_true")
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
            for problem in problems_of(kernel, name.strip(), code, options.list):
                print(f"{name.strip()}: {problem}")
                problems += 1
    print(f"{seen} kernels, {problems} problems")
    return 1 if problems or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
