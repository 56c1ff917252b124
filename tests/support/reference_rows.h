// SPDX-License-Identifier: MIT
// One row of scores and weights by the definition, in fp64 (exact) or fp32 (plain); what both directions are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "error_model.h"
#include "reference.h"

namespace cuflash::test {

// Rows of one head of one entry as fp32 values, which holds every dtype exactly.
struct Matrix {
  int32_t rows = 0;
  int32_t dim = 0;
  std::vector<float> data;        // (rows, dim)
  std::vector<float> transposed;  // (dim, rows)
  std::vector<double> norm;       // of each row
  std::vector<double> size;       // largest finite element of each row
  std::vector<double> step;       // of each row: the largest power of two that divides all finite elements

  const float* row(int32_t i) const { return data.data() + int64_t{i} * dim; }
};

// Whether fp32 holds every product of the two rows and every sum of them: all are multiples of one number, and none
// reaches 2^24 times that.
bool exact_products(const Matrix& x, int32_t i, const Matrix& y, int32_t j);

Matrix read_matrix(const Scenario& scenario, const View& view, const Rows& rows, int32_t head);

// The score function of one entry and head.
struct Scores {
  const Case& c;
  float scale;
  float slope;
  int64_t offset;  // off

  bool sees(int64_t i, int64_t j) const;
  double bias(int64_t i, int64_t j) const;  // slope * distance
};

Scores make_scores(const Scenario& scenario, size_t entry, int32_t head);

// Keys that row i sees, found by asking for each of them.
void find_visible(const Scores& scores, int32_t i, int32_t keys, std::vector<int32_t>* visible);

// out[j] = x . y_j for all rows y_j
template <class Real>
void products(const float* x, const Matrix& y, Real* out);

// out += weight * row
template <class Real>
void accumulate(Real weight, const float* row, int32_t dim, Real* out) {
  for (int32_t e = 0; e < dim; ++e) out[e] += weight * static_cast<Real>(row[e]);
}

template <class Real>
struct Row {
  std::vector<Real> score;
  std::vector<Real> factor;  // softcap's derivative
  std::vector<Real> weight;  // p
  Real lse = 0;

  explicit Row(int32_t keys)
      : score(static_cast<size_t>(keys)), factor(static_cast<size_t>(keys)), weight(static_cast<size_t>(keys)) {}

  void compute_scores(const Scores& f, const float* q, const Matrix& k, int32_t i, const std::vector<int32_t>& visible);
  void compute_softmax(const std::vector<int32_t>& visible);                   // forward
  void compute_weights(const std::vector<int32_t>& visible, float given_lse);  // backward
};

extern template struct Row<double>;
extern template struct Row<float>;

double largest_finite(const double* values, int32_t count);

Expected make_expected(int64_t rows, int32_t dim);

// Stores factor * exact and its allowed error, given the plain row and the floor of the sum.
void finish_row(
    DType dtype,
    double factor,
    std::vector<double>* exact,
    const std::vector<float>& plain,
    const FloorSum& floor,
    Expected* expected,
    int64_t row
);

Reference forward_reference(const Scenario& scenario);
Reference backward_reference(const Scenario& scenario);

}  // namespace cuflash::test
