// SPDX-License-Identifier: MIT
#include <cmath>

#include "parallel.h"
#include "reference_rows.h"

namespace cuflash::test {
namespace {

template <class Real>
Real dot(const float* x, const float* y, int32_t dim) {
  Real sum = 0;
  for (int32_t e = 0; e < dim; ++e) sum += static_cast<Real>(x[e]) * static_cast<Real>(y[e]);
  return sum;
}

// One key head of one entry with all query heads that read it.
template <class Real>
struct Accumulator {
  std::vector<Real> dk;  // (keys, head_dim)
  std::vector<Real> dv;  // (keys, head_dim_v)

  Accumulator(const Matrix& k, const Matrix& v) : dk(k.data.size()), dv(v.data.size()) {}
};

struct QueryHead {
  Matrix q;
  Matrix o;
  Matrix dout;
  Scores scores;
  int32_t head;
};

class BackwardGroup {
 public:
  BackwardGroup(const Scenario& scenario, size_t entry, int32_t head_k, Reference* reference)
      : scenario_(scenario),
        c_(scenario.c),
        entry_(entry),
        head_k_(head_k),
        reference_(*reference),
        k_(read_matrix(scenario, scenario.geometry.tensor_k, scenario.geometry.k.entries[entry], head_k)),
        v_(read_matrix(scenario, scenario.geometry.tensor_v, scenario.geometry.k.entries[entry], head_k)),
        exact_(k_, v_),
        plain_(k_, v_),
        floor_dk_(static_cast<size_t>(k_.rows)),
        floor_dv_(static_cast<size_t>(k_.rows)) {}

  void compute() {
    const int32_t group = c_.heads / c_.heads_k;
    for (int32_t head = head_k_ * group; head < (head_k_ + 1) * group; ++head) add_head(head);
    store_keys();
  }

 private:
  void add_head(int32_t head) {
    const Geometry& g = scenario_.geometry;
    const Rows& rows = g.q.entries[entry_];
    const QueryHead h{
        read_matrix(scenario_, g.tensor_q, rows, head),
        read_matrix(scenario_, g.tensor_o, rows, head),
        read_matrix(scenario_, g.tensor_dout, rows, head),
        make_scores(scenario_, entry_, head),
        head};
    Row<double> exact(k_.rows);
    Row<float> plain(k_.rows);
    std::vector<int32_t> visible;
    for (int32_t i = 0; i < h.q.rows; ++i) {
      const auto index = static_cast<size_t>(lse_index(c_, g.q, static_cast<int32_t>(entry_), head, i));
      const float lse = scenario_.floats(Buffer::kLse)[index];
      const float dlse = c_.dlse ? scenario_.floats(Buffer::kDlse)[index] : 0.0f;
      find_visible(h.scores, i, k_.rows, &visible);
      exact.compute_scores(h.scores, h.q.row(i), k_, i, visible);
      exact.compute_weights(visible, lse);
      plain.compute_scores(h.scores, h.q.row(i), k_, i, visible);
      plain.compute_weights(visible, lse);
      add_row(h, i, dlse, visible, exact, plain);
    }
  }

  void add_row(
      const QueryHead& h,
      int32_t i,
      float dlse,
      const std::vector<int32_t>& visible,
      const Row<double>& exact,
      const Row<float>& plain
  ) {
    std::vector<double> dp(static_cast<size_t>(k_.rows));
    std::vector<float> plain_dp(static_cast<size_t>(k_.rows));
    products(h.dout.row(i), v_, dp.data());
    products(h.dout.row(i), v_, plain_dp.data());
    const double delta = dot<double>(h.dout.row(i), h.o.row(i), v_.dim);
    const float plain_delta = dot<float>(h.dout.row(i), h.o.row(i), v_.dim);

    std::vector<double> dq(static_cast<size_t>(k_.dim));
    std::vector<float> plain_dq(static_cast<size_t>(k_.dim));
    FloorSum floor_dq;
    for (const int32_t j : visible) {
      const double ds = exact.weight[j] * (dp[j] - delta + dlse) * exact.factor[j];
      add_products(exact.weight[j], ds, h, i, j, dq.data(), &exact_);
      const float plain_ds = plain.weight[j] * (plain_dp[j] - plain_delta + dlse) * plain.factor[j];
      add_products(
          round_to(c_.dtype, plain.weight[j]), round_to(c_.dtype, plain_ds), h, i, j, plain_dq.data(), &plain_
      );
      add_floors(h, i, j, {exact, dp[j], delta, dlse, ds}, &floor_dq);
    }
    if (!c_.deterministic) floor_dq.add_error(kFlushedByAtomics * static_cast<double>(visible.size()));
    const int64_t row = expected_row(scenario_.geometry.q, c_.heads, entry_, h.head, i);
    finish_row(c_.dtype, scenario_.scale(), &dq, plain_dq, floor_dq, &reference_.dq, row);
  }

  template <class Real>
  void add_products(
      Real p, Real ds, const QueryHead& h, int32_t i, int32_t j, Real* dq, Accumulator<Real>* accumulator
  ) {
    accumulate(ds, k_.row(j), k_.dim, dq);
    accumulate(ds, h.q.row(i), k_.dim, accumulator->dk.data() + int64_t{j} * k_.dim);
    accumulate(p, h.dout.row(i), v_.dim, accumulator->dv.data() + int64_t{j} * v_.dim);
  }

  struct Element {
    const Row<double>& row;
    double dp, delta, dlse, ds;
  };

  void add_floors(const QueryHead& h, int32_t i, int32_t j, const Element& x, FloorSum* floor_dq) {
    const double p = x.row.weight[j];
    if (p == 0) return;  // below any rounding, and of a score of -inf there is no relative error
    const double g = x.row.factor[j];
    const int64_t terms = exact_products(h.q, i, k_, j) ? 0 : k_.dim;
    const double magnitude = std::fabs(h.scores.scale) * h.q.norm[i] * k_.norm[j];
    const ScoreError e = score_error(terms, magnitude, x.row.score[j], g, c_.softcap, h.scores.bias(i, j), x.row.lse);
    const double residual = std::fabs(x.dp - x.delta + x.dlse);
    const double residual_error = sum_error(v_.dim, h.dout.norm[i] * (v_.norm[j] + h.o.norm[i])) +
                                  4 * kUnit * (std::fabs(x.dp) + std::fabs(x.delta) + std::fabs(x.dlse));
    const double p_error = p * e.weight + flushed_weight(c_.dtype);
    const double ds_error = g * (p_error * residual + p * residual_error) + p * residual * (e.factor + 4 * kUnit * g);
    floor_dq->add(x.ds, ds_error, k_.size[j]);
    floor_dk_[j].add(x.ds, ds_error, h.q.size[i]);
    floor_dv_[j].add(p, p_error, h.dout.size[i]);
  }

  void store_keys() {
    const Side& side = scenario_.geometry.k;
    for (int32_t j = 0; j < k_.rows; ++j) {
      const int64_t row = expected_row(side, c_.heads_k, entry_, head_k_, j);
      store_key(exact_.dk, plain_.dk, k_.dim, j, scenario_.scale(), floor_dk_[j], &reference_.dk, row);
      store_key(exact_.dv, plain_.dv, v_.dim, j, 1.0, floor_dv_[j], &reference_.dv, row);
    }
  }

  void store_key(
      const std::vector<double>& exact,
      const std::vector<float>& plain,
      int32_t dim,
      int32_t j,
      double factor,
      const FloorSum& floor,
      Expected* expected,
      int64_t row
  ) {
    std::vector<double> exact_row(exact.begin() + int64_t{j} * dim, exact.begin() + int64_t{j + 1} * dim);
    const std::vector<float> plain_row(plain.begin() + int64_t{j} * dim, plain.begin() + int64_t{j + 1} * dim);
    finish_row(c_.dtype, factor, &exact_row, plain_row, floor, expected, row);
  }

  const Scenario& scenario_;
  const Case& c_;
  size_t entry_;
  int32_t head_k_;
  Reference& reference_;
  Matrix k_;
  Matrix v_;
  Accumulator<double> exact_;
  Accumulator<float> plain_;
  std::vector<FloorSum> floor_dk_;
  std::vector<FloorSum> floor_dv_;
};

}  // namespace

Reference backward_reference(const Scenario& scenario) {
  const Case& c = scenario.c;
  Reference reference;
  reference.dq = make_expected(scenario.geometry.q.used_rows * c.heads, c.head_dim);
  reference.dk = make_expected(scenario.geometry.k.used_rows * c.heads_k, c.head_dim);
  reference.dv = make_expected(scenario.geometry.k.used_rows * c.heads_k, c.value_dim());
  parallel_for(int64_t{c.batch} * c.heads_k, [&](int64_t task) {
    const auto entry = static_cast<size_t>(task / c.heads_k);
    BackwardGroup(scenario, entry, static_cast<int32_t>(task % c.heads_k), &reference).compute();
  });
  return reference;
}

}  // namespace cuflash::test
