// SPDX-License-Identifier: MIT
// How far a right answer may be from the exact one, per row (contract, row 4 of the tests):
//
//   max |got - exact|  <=  2 * max |plain - exact| + floor          maxima over the elements of one row
//
// `plain` is the same computation done the plain way in the precision of the dtype: whole rows of scores, fp32 sums,
// weights and their gradients rounded to the dtype where a matrix product reads them, the result rounded at the end.
// It knows what this row's data do to arithmetic of this precision. The floor is what is left: two right computations
// round differently, and `plain` may be exact by luck. It is derived from the arithmetic, not fitted to any kernel:
//
//   u = 2^-24, the unit roundoff of fp32; t that of the dtype (equal to u for fp32)
//
//   sums      A sum of n products computed in any order is off by about u * sqrt(n) * sum |a||b|: rounding errors have
//             random signs (Higham and Mary 2019). kSpread = 2 of these are allowed. For a product of two rows
//             sum |a||b| is bounded by the product of their norms.
//   scores    x = scale * q.k                        dx = (kSpread sqrt(d) + 1) u |scale| |q||k|
//             without kSpread sqrt(d) where fp32 holds all products and sums exactly (small integers, say)
//             s = c tanh(x / c) - slope * distance   ds = g dx + dx^2 / c + 4 u |s| + 2 u slope * distance
//             with g = s'(x); a second-order term, because the slope g itself moves with x.
//   weights   p = exp(s - lse): the difference is rounded at the size of its operands, and exp makes relative errors of
//             absolute ones. e = ds + 4 u (1 + |s| + |lse|), relative to p.
//   lse       sum p e + u (kSpread sqrt(n) + 4 + |lse|)
//   o         sum p e (|v| + |o|)  +  kSpread sqrt(n) u sum p |v|  +  rounding of p  +  rounding of o
//   gradients the same with ds' = p (dp - delta + dlse) g in the place of p, where dp and delta are sums of products
//             and g = 1 - tanh^2 is off by 4 u + (2 g dx / c + (dx / c)^2).
//   rounding of the weights w that multiply rows a:  kSpread t sqrt(sum w^2 |a|^2) + h sum |a|,
//             random signs again; h is half the smallest subnormal number of the dtype.
//   small     In fp16 and bf16 a weight below 2^-126, the smallest normal number of fp32, may count as 0 in the backward pass:
//             2^-126 of p, and as much of the p in ds. (Forward, a row has a weight of about 1 beside it.)
//   atomics   fp32 additions to global memory treat subnormal numbers as 0 (PTX ISA, red.add.f32): 2^-126 per addition, of
//             which a dq that is not deterministic has at most one per visible key.
//   rounding of the result r:  t |r| + h
//
// |v|, |o|, |r| of a row are its largest elements. All of this is evaluated in fp64 with the exact weights.
#pragma once

#include <cmath>
#include <cstdint>

#include "dtype.h"

namespace cuflash::test {

inline constexpr double kUnit = 0x1p-24;
inline constexpr double kSpread = 2.0;
inline constexpr double kFlushedByAtomics = 0x1p-126;
inline double flushed_weight(DType dtype) { return dtype == DType::kFp32 ? 0.0 : 0x1p-126; }

inline double sum_spread(int64_t terms) { return kSpread * std::sqrt(static_cast<double>(terms)); }

// Error of a sum of `terms` products whose absolute values sum up to `magnitude`.
inline double sum_error(int64_t terms, double magnitude) { return kUnit * sum_spread(terms) * magnitude; }

// Errors of one score. terms: the length of the sum, 0 if it is exact. softcap 0: none; `bias` is slope * distance; g the
// derivative of softcap.
struct ScoreError {
  double product;  // dx
  double factor;   // of g
  double weight;   // e, relative
};

inline ScoreError score_error(
    int64_t terms, double magnitude, double score, double g, double softcap, double bias, double lse
) {
  // An infinite operand makes the product infinite or NaN in any precision; softcap makes a finite score of it again.
  const double dx = std::isfinite(magnitude) ? kUnit * (sum_spread(terms) + 1) * magnitude : 0.0;
  const double bend = softcap > 0 ? dx / softcap : 0.0;
  const double ds = dx * (g + bend) + kUnit * (4 * std::fabs(score) + 2 * bias);
  const double factor = softcap > 0 ? 4 * kUnit + 2 * g * bend + bend * bend : 0.0;
  return {dx, factor, ds + 4 * kUnit * (1 + std::fabs(score) + std::fabs(lse))};
}

// Collects the floor of one row of an output: a sum of weights times rows.
class FloorSum {
 public:
  // A term weight * row with the weight off by weight_error; `size` is the row's largest element.
  void add(double weight, double weight_error, double size) {
    const double term = std::fabs(weight) * size;
    error_ += weight_error * size;
    magnitude_ += term;
    squares_ += term * term;
    sizes_ += size;
    ++terms_;
  }

  // What a relative error of the whole row's weights (normalisation) adds.
  void add_error(double error) { error_ += error; }

  // `factor` multiplies the sum (softmax_scale of dq and dk); `result` is the largest element of the row.
  double floor(DType dtype, double factor, double result) const {
    const double t = unit_roundoff(dtype);
    const double h = half_smallest_subnormal(dtype);
    const double weights = kSpread * t * std::sqrt(squares_) + h * sizes_;
    return factor * (error_ + sum_error(terms_, magnitude_) + weights) + t * result + h;
  }

 private:
  double error_ = 0;
  double magnitude_ = 0;
  double squares_ = 0;
  double sizes_ = 0;
  int64_t terms_ = 0;
};

}  // namespace cuflash::test
