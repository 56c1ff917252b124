// SPDX-License-Identifier: MIT
#include "reference_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace cuflash::test {
namespace {

// The largest power of two that divides the value; infinite for 0.
double divisor_of(float value) {
  if (value == 0 || !std::isfinite(value)) return std::numeric_limits<double>::infinity();
  int exponent = 0;
  const auto digits = static_cast<int32_t>(std::ldexp(std::frexp(value, &exponent), 24));
  return std::ldexp(digits & -digits, exponent - 24);
}

}  // namespace

bool exact_products(const Matrix& x, int32_t i, const Matrix& y, int32_t j) {
  const auto row = static_cast<size_t>(i), other = static_cast<size_t>(j);
  return x.norm[row] * y.norm[other] < 0x1p24 * x.step[row] * y.step[other];
}

Matrix read_matrix(const Scenario& scenario, const View& view, const Rows& rows, int32_t head) {
  Matrix m{rows.length, view.dim, {}, {}, {}, {}, {}};
  m.data.resize(static_cast<size_t>(int64_t{m.rows} * m.dim));
  m.transposed.resize(m.data.size());
  m.norm.resize(static_cast<size_t>(m.rows));
  m.size.resize(static_cast<size_t>(m.rows));
  m.step.resize(static_cast<size_t>(m.rows));
  for (int32_t i = 0; i < m.rows; ++i) {
    const std::byte* source = scenario.data(view, rows.batch, rows.first + i, head);
    double squares = 0;
    double size = 0;
    double step = std::numeric_limits<double>::infinity();
    for (int32_t e = 0; e < m.dim; ++e) {
      const float value = load(scenario.c.dtype, source + static_cast<size_t>(e) * size_of(scenario.c.dtype));
      m.data[static_cast<size_t>(int64_t{i} * m.dim + e)] = value;
      m.transposed[static_cast<size_t>(int64_t{e} * m.rows + i)] = value;
      step = std::min(step, divisor_of(value));
      squares += static_cast<double>(value) * value;
      if (std::isfinite(value)) size = std::max(size, std::fabs(static_cast<double>(value)));
    }
    m.norm[static_cast<size_t>(i)] = std::sqrt(squares);
    m.size[static_cast<size_t>(i)] = size;
    m.step[static_cast<size_t>(i)] = step;
  }
  return m;
}

template <class Real>
void products(const float* x, const Matrix& y, Real* out) {
  std::fill(out, out + y.rows, Real(0));
  for (int32_t e = 0; e < y.dim; ++e) {
    const Real factor = static_cast<Real>(x[e]);
    const float* column = y.transposed.data() + int64_t{e} * y.rows;
    for (int32_t j = 0; j < y.rows; ++j) out[j] += factor * static_cast<Real>(column[j]);
  }
}

template void products(const float*, const Matrix&, double*);
template void products(const float*, const Matrix&, float*);

bool Scores::sees(int64_t i, int64_t j) const {
  const int64_t distance = j - (i + offset);
  switch (c.mask) {
    case Mask::kCausal: return distance <= 0;
    case Mask::kWindow:
      return (c.window_left < 0 || distance >= -c.window_left) && (c.window_right < 0 || distance <= c.window_right);
    default: return true;
  }
}

double Scores::bias(int64_t i, int64_t j) const {
  return static_cast<double>(slope) * static_cast<double>(std::abs(i + offset - j));
}

Scores make_scores(const Scenario& scenario, size_t entry, int32_t head) {
  const Case& c = scenario.c;
  const int64_t difference =
      int64_t{scenario.geometry.k.entries[entry].length} - scenario.geometry.q.entries[entry].length;
  const int64_t offset = c.align == Align::kBottomRight ? difference : 0;
  return {c, scenario.scale(), scenario.slope(static_cast<int32_t>(entry), head), offset};
}

void find_visible(const Scores& f, int32_t i, int32_t keys, std::vector<int32_t>* visible) {
  visible->clear();
  for (int32_t j = 0; j < keys; ++j) {
    if (f.sees(i, j)) visible->push_back(j);
  }
}

template <class Real>
void Row<Real>::compute_scores(
    const Scores& f, const float* q, const Matrix& k, int32_t i, const std::vector<int32_t>& visible
) {
  products(q, k, score.data());
  for (const int32_t j : visible) {
    Real x = score[j] * static_cast<Real>(f.scale);
    factor[j] = 1;
    if (f.c.softcap > 0) {
      const Real t = std::tanh(x / static_cast<Real>(f.c.softcap));
      x = static_cast<Real>(f.c.softcap) * t;
      factor[j] = 1 - t * t;
    }
    score[j] = x - static_cast<Real>(f.bias(i, j));
  }
}

template <class Real>
void Row<Real>::compute_softmax(const std::vector<int32_t>& visible) {
  Real largest = -std::numeric_limits<Real>::infinity();
  for (const int32_t j : visible) {
    if (!(score[j] <= largest)) largest = score[j];  // NaN stays once it is there
    if (largest != largest) break;
  }
  if (largest == -std::numeric_limits<Real>::infinity()) {  // no key, or only scores of -inf: every weight is 0
    for (const int32_t j : visible) weight[j] = 0;
    lse = largest;
    return;
  }
  Real sum = 0;
  for (const int32_t j : visible) sum += weight[j] = std::exp(score[j] - largest);
  for (const int32_t j : visible) weight[j] /= sum;
  lse = largest + std::log(sum);
}

template <class Real>
void Row<Real>::compute_weights(const std::vector<int32_t>& visible, float given_lse) {
  lse = static_cast<Real>(given_lse);
  for (const int32_t j : visible) {
    const Real e = given_lse == -std::numeric_limits<float>::infinity() ? Real(0) : std::exp(score[j] - lse);
    weight[j] = e > 1 ? Real(1) : e;  // the given lse is rounded; NaN stays
  }
}

template struct Row<double>;
template struct Row<float>;

double largest_finite(const double* values, int32_t count) {
  double largest = 0;
  for (int32_t e = 0; e < count; ++e) {
    if (std::isfinite(values[e])) largest = std::max(largest, std::fabs(values[e]));
  }
  return largest;
}

Expected make_expected(int64_t rows, int32_t dim) {
  Expected expected;
  expected.dim = dim;
  expected.value.resize(static_cast<size_t>(rows * dim));
  expected.allowed.resize(static_cast<size_t>(rows));
  return expected;
}

void finish_row(
    DType dtype,
    double factor,
    std::vector<double>* exact,
    const std::vector<float>& plain,
    const FloorSum& floor,
    Expected* expected,
    int64_t row
) {
  double plain_error = 0;
  for (size_t e = 0; e < exact->size(); ++e) {
    (*exact)[e] *= factor;
    const float rounded = round_to(dtype, plain[e] * static_cast<float>(factor));
    const double difference = std::fabs(rounded - (*exact)[e]);
    if (std::isfinite(difference)) plain_error = std::max(plain_error, difference);
  }
  std::copy(exact->begin(), exact->end(), expected->value.begin() + row * expected->dim);
  const double size = largest_finite(exact->data(), expected->dim);
  expected->allowed[static_cast<size_t>(row)] = 2 * plain_error + floor.floor(dtype, std::fabs(factor), size);
}

}  // namespace cuflash::test
