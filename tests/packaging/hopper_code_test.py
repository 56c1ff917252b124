#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""hopper_code.py finds the innermost loops of products in machine code, and counts moves to uniform registers there."""
import unittest

import hopper_code


def listing(*instructions):
    """As cuobjdump prints them: 16 bytes each, from address 0 on."""
    lines = (f"        /*{16 * i:04x}*/    {text} ;    /* 0x0000 */\n" for i, text in enumerate(instructions))
    return "".join(lines)


# A wait that did not succeed at once goes on behind the end of the kernel and comes back.
STEP_WITH_A_WAIT = listing(
    "R2UR UR4, R2",  # 0x00
    "R2UR UR5, R3",  # 0x10, of the tile
    "R2UR UR6, R4",  # 0x20, of the step
    "@!P0 BRA 0x80",  # 0x30
    "HGMMA.64x128x16.F32 R24, gdesc[UR4], R24",  # 0x40
    "@P1 BRA 0x20",  # 0x50
    "@P2 BRA 0x10",  # 0x60
    "EXIT",  # 0x70
    "R2UR UR7, R5",  # 0x80
    "BRA 0x40",  # 0x90
)


def moves(code):
    loops, operations = hopper_code.product_loops(code)
    return loops, operations["R2UR"]


class LoopTest(unittest.TestCase):
    def test_the_step_counts_and_what_is_round_it_does_not(self):
        self.assertEqual(moves(STEP_WITH_A_WAIT), (1, 2))

    def test_a_loop_without_products_does_not_count(self):
        code = listing("R2UR UR4, R2", "@P0 BRA 0x0", "HGMMA.64x64x16.F32 R24, gdesc[UR4], R24", "EXIT")
        self.assertEqual(moves(code), (0, 0))

    def test_a_branch_whose_predicate_is_behind_its_name(self):
        code = listing("R2UR UR4, R2", "HGMMA.64x64x16.F32 R24, gdesc[UR4]", "BRA.U UP0, 0x0", "R2UR UR5, R2", "EXIT")
        self.assertEqual(moves(code), (1, 1))


class BudgetTest(unittest.TestCase):
    def problems(self, row):
        name = f"_ZN7cuflash4sm9010fwd_kernelI6__halfLi{row}EEEv"
        code = STEP_WITH_A_WAIT + "UTMALDG UTMASTG"
        return list(hopper_code.problems_of("fwd_kernel", name, code, False))

    def test_moves_above_the_budget(self):
        hopper_code.MOST_MOVES = {"fwd_kernel": {0: 1, 1: 2}}
        self.assertEqual(self.problems(0), ["2 moves to uniform registers (R2UR) in loops of products, above 1"])
        self.assertEqual(self.problems(1), [])
        self.assertEqual(self.problems(2), [])

    def test_multiply_adds_that_read_all_registers(self):
        step = ["HGMMA.64x64x16.F32 R24, gdesc[UR4], R24", "FFMA R88, R88, UR8, R18.reuse", "FFMA R89, R89, UR8, R17"]
        code = listing(*step, "@P0 BRA 0x0", "FFMA R1, R1, R2, R3", "EXIT") + "UTMALDG UTMASTG"
        found = [
            list(hopper_code.problems_of("fwd_kernel", f"fwd_kernelILi7ELb{plain}EE", code, False)) for plain in (0, 1)
        ]
        problem = "1 of 2 multiply-adds in loops of products reuse an operand, fewer than 1"
        self.assertEqual(found, [[], [problem]])


if __name__ == "__main__":
    unittest.main()
