// SPDX-License-Identifier: MIT
// Causal attention and its gradients written straight from the formulas of cuflash.h, in double, with the whole row of
// scores in memory: slow, and sharing no code with the library that it checks.
#pragma once

#include <cmath>
#include <vector>

namespace demo {

struct Shape {
  int batch;
  int num_heads;
  int num_heads_k;
  int seqlen;
  int head_dim;

  // Tensors are (batch, seqlen, heads, head_dim), without gaps.
  size_t at(int b, int row, int head, int heads) const {
    return ((static_cast<size_t>(b) * seqlen + row) * heads + head) * head_dim;
  }
  size_t query_size() const { return static_cast<size_t>(batch) * seqlen * num_heads * head_dim; }
  size_t key_size() const { return static_cast<size_t>(batch) * seqlen * num_heads_k * head_dim; }
  size_t lse_size() const { return static_cast<size_t>(batch) * num_heads * seqlen; }
  // One multiplication and one addition for each visible pair, head and element; forward has two products, backward five.
  double flops(int products) const {
    return 2.0 * products * batch * num_heads * (0.5 * seqlen * (seqlen + 1.0)) * head_dim;
  }
};

struct Tensors {
  std::vector<double> q, k, v, o, lse, dout, dq, dk, dv;
};

inline double dot(const double* x, const double* y, int count) {
  double sum = 0.0;
  for (int i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

inline void add_scaled(double* y, double scale, const double* x, int count) {
  for (int i = 0; i < count; ++i) y[i] += scale * x[i];
}

// One query row: its output and lse, and what it adds to the gradients.
inline void reference_row(const Shape& shape, int b, int head, int row, std::vector<double>& p, Tensors* t) {
  const int dim = shape.head_dim;
  const int head_k = head / (shape.num_heads / shape.num_heads_k);
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  const size_t at_q = shape.at(b, row, head, shape.num_heads);
  const auto at_k = [&](int key) { return shape.at(b, key, head_k, shape.num_heads_k); };

  double row_max = -HUGE_VAL;
  for (int key = 0; key <= row; ++key) {
    p[key] = scale * dot(&t->q[at_q], &t->k[at_k(key)], dim);
    row_max = std::fmax(row_max, p[key]);
  }
  double row_sum = 0.0;
  for (int key = 0; key <= row; ++key) row_sum += p[key] = std::exp(p[key] - row_max);
  for (int key = 0; key <= row; ++key) {
    p[key] /= row_sum;
    add_scaled(&t->o[at_q], p[key], &t->v[at_k(key)], dim);
  }
  t->lse[(static_cast<size_t>(b) * shape.num_heads + head) * shape.seqlen + row] = row_max + std::log(row_sum);

  const double delta = dot(&t->dout[at_q], &t->o[at_q], dim);
  for (int key = 0; key <= row; ++key) {
    const double ds = p[key] * (dot(&t->dout[at_q], &t->v[at_k(key)], dim) - delta);
    add_scaled(&t->dq[at_q], scale * ds, &t->k[at_k(key)], dim);
    add_scaled(&t->dk[at_k(key)], scale * ds, &t->q[at_q], dim);
    add_scaled(&t->dv[at_k(key)], p[key], &t->dout[at_q], dim);
  }
}

// From q, k, v and dout to all the others.
inline void reference(const Shape& shape, Tensors* t) {
  t->o.assign(shape.query_size(), 0.0);
  t->lse.assign(shape.lse_size(), 0.0);
  t->dq.assign(shape.query_size(), 0.0);
  t->dk.assign(shape.key_size(), 0.0);
  t->dv.assign(shape.key_size(), 0.0);
  std::vector<double> p(static_cast<size_t>(shape.seqlen));
  for (int b = 0; b < shape.batch; ++b) {
    for (int head = 0; head < shape.num_heads; ++head) {
      for (int row = 0; row < shape.seqlen; ++row) reference_row(shape, b, head, row, p, t);
    }
  }
}

}  // namespace demo
