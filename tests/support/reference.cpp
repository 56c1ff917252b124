// SPDX-License-Identifier: MIT
#include "reference.h"

#include "reference_rows.h"

namespace cuflash::test {

void fill_forward_results(Scenario* scenario) {
  const Case& c = scenario->c;
  const Geometry& g = scenario->geometry;
  const Reference forward = forward_reference(*scenario);
  for (size_t entry = 0; entry < g.q.entries.size(); ++entry) {
    const Rows& rows = g.q.entries[entry];
    for (int32_t head = 0; head < c.heads; ++head) {
      for (int32_t i = 0; i < rows.length; ++i) {
        const auto row = static_cast<size_t>(expected_row(g.q, c.heads, entry, head, i));
        const auto index = static_cast<size_t>(lse_index(c, g.q, static_cast<int32_t>(entry), head, i));
        scenario->floats(Buffer::kLse)[index] = static_cast<float>(forward.lse.value[row]);
        std::byte* o = scenario->data(g.tensor_o, rows.batch, rows.first + i, head);
        const double* source = forward.o.value.data() + row * static_cast<size_t>(forward.o.dim);
        for (int32_t e = 0; e < forward.o.dim; ++e) {
          store(c.dtype, o + static_cast<size_t>(e) * size_of(c.dtype), static_cast<float>(source[e]));
        }
      }
    }
  }
}

Reference make_reference(const Scenario& scenario) {
  return scenario.c.op == Op::kForward ? forward_reference(scenario) : backward_reference(scenario);
}

}  // namespace cuflash::test
