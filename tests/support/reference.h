// SPDX-License-Identifier: MIT
// What a case must give: plain attention written by its definition, one row at a time, in fp64, and beside it the same
// in the precision of the dtype, from which the allowed error of each row follows (error_model.h). It shares no code
// with the library: the host kernel is tested against it like every other.
#pragma once

#include <vector>

#include "scenario.h"

namespace cuflash::test {

// Used rows only, all entries one after another.
struct Expected {
  int32_t dim = 0;
  std::vector<double> value;    // (rows, dim)
  std::vector<double> allowed;  // (rows); where it is not finite, only NaN and infinities are accepted
};

struct Reference {
  Expected o, lse;      // forward
  Expected dq, dk, dv;  // backward
};

// Row of Expected: the rows of one head of one entry are neighbours.
inline int64_t expected_row(const Side& side, int32_t heads, size_t entry, int32_t head, int32_t row) {
  return side.first_index[entry] * heads + int64_t{head} * side.entries[entry].length + row;
}

// Writes o and lse of a backward case into its image, rounded as a right forward call leaves them.
void fill_forward_results(Scenario* scenario);

// The results of scenario.c.op for the inputs in the image.
Reference make_reference(const Scenario& scenario);

}  // namespace cuflash::test
