// SPDX-License-Identifier: MIT
// The online softmax (Milakov and Gimelshein 2018; Dao et al. 2022, section 3.1): a row's running maximum and sum.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/common/host_device.h"

namespace cuflash {

template <class Real>
inline constexpr Real kNegativeInfinity = -std::numeric_limits<Real>::infinity();

// A maximum that keeps NaN, unlike fmax: a NaN score must reach its row.
template <class Real>
CUFLASH_HD Real max_or_nan(Real a, Real b) {
  return (a > b || a != a) ? a : b;
}

template <class Real>
struct RowState {
  Real row_max;  // -inf: nothing seen, or only scores of -inf
  Real row_sum;  // sum of exp(s - row_max)

  CUFLASH_HD static RowState empty() { return {kNegativeInfinity<Real>, Real(0)}; }

  // The value subtracted from scores: -inf - (-inf) would be NaN where the weight is 0.
  CUFLASH_HD Real shift() const { return row_max == kNegativeInfinity<Real> ? Real(0) : row_max; }

  // Raises the maximum before scores up to block_max are added. What was accumulated relative to the old maximum, the
  // sum included, is to be multiplied by the result; the sum is done here.
  CUFLASH_HD Real raise(Real block_max) {
    const Real old_max = row_max;
    row_max = max_or_nan(row_max, block_max);
    const Real rescale = exp(old_max - shift());
    row_sum *= rescale;
    return rescale;
  }

  // exp(s - row_max) sums to 0 only if no key was seen (or all scores are -inf): o = 0, lse = -inf.
  CUFLASH_HD Real inverse_sum() const { return row_sum == Real(0) ? Real(0) : Real(1) / row_sum; }
  CUFLASH_HD Real lse() const { return row_sum == Real(0) ? kNegativeInfinity<Real> : row_max + log(row_sum); }
};

}  // namespace cuflash
