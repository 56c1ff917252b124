// SPDX-License-Identifier: MIT
#include <cmath>

#include "parallel.h"
#include "reference_rows.h"

namespace cuflash::test {
namespace {

struct ForwardHead {
  const Scenario& scenario;
  size_t entry;
  int32_t head;
  Reference* reference;

  void compute() {
    const Case& c = scenario.c;
    const Geometry& g = scenario.geometry;
    const int32_t head_k = head / (c.heads / c.heads_k);
    const Matrix q = read_matrix(scenario, g.tensor_q, g.q.entries[entry], head);
    const Matrix k = read_matrix(scenario, g.tensor_k, g.k.entries[entry], head_k);
    const Matrix v = read_matrix(scenario, g.tensor_v, g.k.entries[entry], head_k);
    const Scores scores = make_scores(scenario, entry, head);
    Row<double> exact(k.rows);
    Row<float> plain(k.rows);
    std::vector<int32_t> visible;
    for (int32_t i = 0; i < q.rows; ++i) {
      find_visible(scores, i, k.rows, &visible);
      exact.compute_scores(scores, q.row(i), k, i, visible);
      exact.compute_softmax(visible);
      plain.compute_scores(scores, q.row(i), k, i, visible);
      plain.compute_softmax(visible);
      store_row(scores, q, k, v, i, visible, exact, plain);
    }
  }

  void store_row(
      const Scores& scores,
      const Matrix& q,
      const Matrix& k,
      const Matrix& v,
      int32_t i,
      const std::vector<int32_t>& visible,
      const Row<double>& exact,
      const Row<float>& plain
  ) {
    const Case& c = scenario.c;
    std::vector<double> o(static_cast<size_t>(v.dim));
    std::vector<float> plain_o(static_cast<size_t>(v.dim));
    for (const int32_t j : visible) {
      accumulate(exact.weight[j], v.row(j), v.dim, o.data());
      accumulate(round_to(c.dtype, plain.weight[j]), v.row(j), v.dim, plain_o.data());
    }
    FloorSum floor;
    double lse_error = 0;
    for (const int32_t j : visible) {
      if (exact.weight[j] == 0) continue;  // below any rounding, and of a score of -inf there is no relative error
      const int64_t terms = exact_products(q, i, k, j) ? 0 : q.dim;
      const double magnitude = std::fabs(scores.scale) * q.norm[i] * k.norm[j];
      const ScoreError e =
          score_error(terms, magnitude, exact.score[j], exact.factor[j], c.softcap, scores.bias(i, j), exact.lse);
      floor.add(exact.weight[j], exact.weight[j] * e.weight, v.size[j]);
      lse_error += exact.weight[j] * e.weight;
    }
    floor.add_error(lse_error * largest_finite(o.data(), v.dim));

    const int64_t row = expected_row(scenario.geometry.q, c.heads, entry, head, i);
    finish_row(c.dtype, 1.0, &o, plain_o, floor, &reference->o, row);
    double lse_allowed = 0;
    if (std::isfinite(exact.lse)) {
      lse_allowed = 2 * std::fabs(plain.lse - exact.lse) + lse_error +
                    kUnit * (sum_spread(static_cast<int64_t>(visible.size())) + 4 + std::fabs(exact.lse));
    }
    reference->lse.value[static_cast<size_t>(row)] = exact.lse;
    reference->lse.allowed[static_cast<size_t>(row)] = lse_allowed;
  }
};

}  // namespace

Reference forward_reference(const Scenario& scenario) {
  const Case& c = scenario.c;
  Reference reference;
  reference.o = make_expected(scenario.geometry.q.used_rows * c.heads, c.value_dim());
  reference.lse = make_expected(scenario.geometry.q.used_rows * c.heads, 1);
  parallel_for(int64_t{c.batch} * c.heads, [&](int64_t task) {
    const auto entry = static_cast<size_t>(task / c.heads);
    ForwardHead{scenario, entry, static_cast<int32_t>(task % c.heads), &reference}.compute();
  });
  return reference;
}

}  // namespace cuflash::test
