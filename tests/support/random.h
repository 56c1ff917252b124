// SPDX-License-Identifier: MIT
// Random numbers that are the same with every compiler and library (those of <random> distributions are not).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cuflash::test {

class Random {
 public:
  // Different streams of one seed are independent.
  explicit Random(uint64_t seed, uint64_t stream = 0) : state_(mix(seed) ^ mix(~stream)) {}

  uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15); }

  // 0 <= result < bound
  int64_t below(int64_t bound) { return static_cast<int64_t>((next() >> 32) * static_cast<uint64_t>(bound) >> 32); }
  int32_t between(int32_t low, int32_t high) { return low + static_cast<int32_t>(below(int64_t{high} - low + 1)); }
  bool chance(int percent) { return below(100) < percent; }

  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  // Mean 0, variance 1, bounded by 3.5: the sum of four uniform numbers.
  float normal() {
    const uint64_t bits = next();
    const auto sum = static_cast<float>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
    return (sum * 0x1p-16f - 2.0f) * 1.7320508f;
  }

  template <class T, size_t kSize>
  const T& pick(const T (&choices)[kSize]) {
    return choices[below(kSize)];
  }
  template <class T>
  const T& pick(std::span<const T> choices) {
    return choices[static_cast<size_t>(below(static_cast<int64_t>(choices.size())))];
  }

 private:
  static constexpr uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }

  uint64_t state_;
};

}  // namespace cuflash::test
