// SPDX-License-Identifier: MIT
// The lists of cases: the grid that covers shapes, and random cases that cover combinations of features.
#pragma once

#include <cstdint>
#include <vector>

#include "case.h"

namespace cuflash::test {

// Every head_dim with every mask, each with six pairs of lengths and every kind of head sharing in turn, so that all
// pairs of (length, head_dim), (length, mask) and (length, heads) come up. Rounds after the first shift the turns.
std::vector<Case> grid_cases(Op op, DType dtype, int32_t rounds);

// Every n-th case of a list.
std::vector<Case> every_nth(const std::vector<Case>& cases, int32_t n);

// A case with any features, shapes and layouts, small enough to be computed on the CPU in some milliseconds.
Case random_case(uint64_t seed);

}  // namespace cuflash::test
