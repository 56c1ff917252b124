// SPDX-License-Identifier: MIT
// From the product q . k to the score that enters the softmax, and back.
#pragma once

#include <cmath>

#include "kernels/common/host_device.h"
#include "kernels/common/online_softmax.h"
#include "kernels/common/sequence.h"

namespace cuflash {

template <class Real>
struct Score {
  Real value;   // s
  Real factor;  // ds / d(scale * q.k): softcap's derivative, 1 without softcap
};

CUFLASH_HD float alibi_slope(const Attention& a, int32_t entry, int32_t head) {
  return a.alibi_slopes == nullptr ? 0.0f : a.alibi_slopes[entry * a.alibi_batch_stride + head];
}

// Real is float on the GPU and double on the host.
template <class Real>
CUFLASH_HD Score<Real> score_of(
    const Attention& a, Real product, Real slope, const Sequence& s, int64_t row, int64_t key
) {
  Score<Real> score{product * static_cast<Real>(a.scale), Real(1)};
  if (a.softcap > 0.0f) {
    const Real cap = static_cast<Real>(a.softcap);
    const Real t = tanh(score.value / cap);
    score = {cap * t, Real(1) - t * t};
  }
  if (a.alibi_slopes != nullptr) {
    const int64_t distance = row + s.offset - key;
    score.value -= slope * static_cast<Real>(distance < 0 ? -distance : distance);
  }
  return score;
}

// What a (query, key) pair contributes to the gradients: dv_j += p dout_i, dk_j += ds q_i, dq_i += ds k_j.
template <class Real>
struct PairWeights {
  Real p;
  Real ds;
};

// dp_shifted is dp - delta + dlse. A row with lse = -inf saw nothing: its weights are 0 whatever else it holds.
template <class Real>
CUFLASH_HD PairWeights<Real> pair_weights(const Score<Real>& score, Real lse, Real dp_shifted) {
  if (lse == kNegativeInfinity<Real>) return {Real(0), Real(0)};
  // Rounding lse to fp32 can leave score - lse above 0, by a lot for huge scores; a weight is never above 1.
  const Real e = exp(score.value - lse);
  const Real p = e > Real(1) ? Real(1) : e;
  return {p, p * dp_shifted * score.factor};
}

}  // namespace cuflash
