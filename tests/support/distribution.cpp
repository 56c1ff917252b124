// SPDX-License-Identifier: MIT
#include "distribution.h"

#include <cmath>

namespace cuflash::test {
namespace {

// Of scores: what a step distribution's first elements alone give.
constexpr float kSteep = 200.0f;

// kHugeRow: what a few rows of q and one of k begin with. Their score is beyond 2^24, where kernels may leave their fast path.
constexpr float kHugeElement = 32768.0f;

// q and k with which scores have standard deviation `wanted`: q . k has that of |q| |k| sqrt(head_dim).
float factor_for(float wanted, int32_t head_dim, float scale) {
  return std::sqrt(wanted / std::fabs(scale)) / std::pow(static_cast<float>(head_dim), 0.25f);
}

}  // namespace

Values::Values(const Case& c, float scale) : c_(c), scale_(scale), factors_(factors_of(c, scale)) {}

Values::Factors Values::factors_of(const Case& c, float scale) {
  const bool fp16 = c.dtype == DType::kFp16;
  switch (c.distribution) {
    case Distribution::kHuge: {
      // Three standard deviations make a score of 1e4.
      const float factor = factor_for(1e4f / 3.0f, c.head_dim, scale);
      return {.q = factor, .k = factor};
    }
    case Distribution::kBalanced: {
      const float factor = factor_for(1.0f, c.head_dim, scale);
      return {.q = factor, .k = factor};
    }
    case Distribution::kDenormal: {
      const float tiny = fp16 ? 0x1p-20f : 0x1p-130f;
      return {.q = tiny, .v = tiny};
    }
    case Distribution::kThousand: return {.q = 1e3f, .k = 1e3f, .v = 1e3f, .dout = 1e3f};
    case Distribution::kBigValues: return {.v = fp16 ? 1e3f : 1e30f};
    case Distribution::kSmallValues: return {.v = fp16 ? 0x1p-12f : 1e-30f};
    case Distribution::kTinyGradients: return {.dout = fp16 ? 0x1p-20f : 0x1p-130f};
    case Distribution::kZero: return {.q = 0.0f};
    default: return {};
  }
}

float Values::draw(Random& random) const {
  return c_.distribution == Distribution::kPositive ? static_cast<float>(random.uniform()) : random.normal();
}

// kHuge: integers, whose products and sums fp32 holds exactly.
float Values::shaped(float factor, Random& random) const {
  const float value = factor * draw(random);
  return c_.distribution == Distribution::kHuge ? std::round(value) : value;
}

// kLarge: the first elements alone give every score of a row about +-1e4, the others differences of a few units.
// Every product is a multiple of 1/16 and every sum of them below 2^20, so that fp32 holds both exactly.
float Values::large(Random& random, int32_t element, bool signed_first) const {
  if (element > 0) return std::round(4.0f * random.normal()) / 4.0f;
  const float size = std::exp2(std::round(std::log2(1e4f / std::fabs(scale_)) / 2.0f));
  return signed_first && random.chance(50) ? -size : size;
}

// Distributions whose first elements give a key the same large score in every row: first_of_key() says which.
bool Values::has_steps() const {
  switch (c_.distribution) {
    case Distribution::kLowLse:
    case Distribution::kOneHuge:
    case Distribution::kLastHuge:
    case Distribution::kRising:
    case Distribution::kFalling:
    case Distribution::kStepDown:
    case Distribution::kAlternating:
    case Distribution::kTies: return true;
    default: return false;
  }
}

// The score that a key gets from the first elements, in units of kSteep.
float Values::first_of_key(const Place& at) const {
  constexpr int32_t kTileRows = 32;  // the smallest tile that kernels have
  constexpr float kUnitPerKey = 3.0f / kSteep;
  switch (c_.distribution) {
    case Distribution::kLowLse: return -1.0f;
    case Distribution::kOneHuge: return at.row == 1 ? 1.0f : 0.0f;
    case Distribution::kLastHuge: return at.row == at.rows - 1 ? 1.0f : 0.0f;
    case Distribution::kRising: return kUnitPerKey * static_cast<float>(at.row);
    case Distribution::kFalling: return -kUnitPerKey * static_cast<float>(at.row);
    case Distribution::kStepDown: return at.row < at.rows / 2 ? -1.0f : -3.0f;
    case Distribution::kAlternating: return at.row / kTileRows % 2 == 0 ? -1.0f : 1.0f;
    default: return at.row % 3 == 0 ? 1.0f : -1.0f;  // kTies
  }
}

float Values::query(Random& random, const Place& at) const {
  const bool ties = c_.distribution == Distribution::kTies;
  if (c_.distribution == Distribution::kLarge) return large(random, at.element, true);
  if (c_.distribution == Distribution::kEqualHuge) return at.element == 0 ? std::sqrt(1e4f / std::fabs(scale_)) : 0.0f;
  if (has_steps() && at.element == 0) return std::sqrt(kSteep / std::fabs(scale_));
  if (c_.distribution == Distribution::kHugeRow && at.element == 0) return at.row % 32 == 5 ? kHugeElement : 0.0f;
  return ties ? 0.0f : shaped(factors_.q, random);
}

float Values::key(Random& random, const Place& at) const {
  if (c_.distribution == Distribution::kLarge) return large(random, at.element, false);
  if (c_.distribution == Distribution::kEqualHuge) return at.element == 0 ? std::sqrt(1e4f / std::fabs(scale_)) : 1.0f;
  if (c_.distribution == Distribution::kEqual) return 4.0f / static_cast<float>(1 + at.element % 7);
  if (has_steps() && at.element == 0) return std::sqrt(kSteep / std::fabs(scale_)) * first_of_key(at);
  if (c_.distribution == Distribution::kHugeRow && at.element == 0)
    return at.row == at.rows * 3 / 4 ? kHugeElement : 0.0f;
  return shaped(factors_.k, random);
}

// kCancelling: neighbours of opposite sign, so that sums over many keys are far smaller than their terms.
float Values::value(Random& random, const Place& at) const {
  const float value = factors_.v * draw(random);
  if (c_.distribution != Distribution::kCancelling) return value;
  return value + (at.row % 2 == 0 ? 256.0f : -256.0f);
}

float Values::dout(Random& random) const { return factors_.dout * random.normal(); }

}  // namespace cuflash::test
