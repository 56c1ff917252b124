// SPDX-License-Identifier: MIT
// The verdict on one call: values by the error rule of error_model.h, and that nothing but rows of outputs was written.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reference.h"
#include "scenario.h"

namespace cuflash::test {

// Calls visit(name, view, side, head count, expected) for each output tensor of a case but lse.
template <class ReferenceT, class Visit>
void for_each_output(const Scenario& scenario, ReferenceT& reference, Visit visit) {
  const Geometry& g = scenario.geometry;
  if (scenario.c.op == Op::kForward) {
    visit("o", g.tensor_o, g.q, reference.o);
  } else {
    visit("dq", g.tensor_dq, g.q, reference.dq);
    visit("dk", g.tensor_dk, g.k, reference.dk);
    visit("dv", g.tensor_dv, g.k, reference.dv);
  }
}

// Empty if every value is right: otherwise the worst element, with both values and what was allowed.
std::string compare_values(const Scenario& scenario, const Reference& reference, const std::vector<std::byte>& image);

// Rows for which zeros would pass: the allowed error reaches the row's largest value. Rows that round to zero in the
// dtype count as no rows.
struct Vacuity {
  int64_t rows = 0;
  int64_t vacuous = 0;
};
Vacuity vacuity_of(const Expected& expected, DType dtype);

// Empty if inputs, gaps and red zones are as they were: otherwise the first changed byte.
std::string compare_guards(const Scenario& scenario, const std::vector<std::byte>& image);

// `image` with everything but rows of outputs replaced by what the scenario has: equal for calls with equal results.
std::vector<std::byte> results_only(const Scenario& scenario, const std::vector<std::byte>& image);

}  // namespace cuflash::test
