// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/dtype.h"
#include "support/random.h"

namespace cuflash::test {
namespace {

struct Format {
  float (*value)(uint16_t);
  uint16_t (*bits)(float);
  int exponent_bits;
  int fraction_bits;
};

constexpr Format kFormats[] = {{fp16_value, fp16_bits, 5, 10}, {bf16_value, bf16_bits, 8, 7}};

// The value of a finite pattern by IEEE 754's definition.
double by_definition(const Format& f, uint16_t bits) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7FFF) >> f.fraction_bits;
  const int fraction = bits & ((1 << f.fraction_bits) - 1);
  const double magnitude = exponent == 0
                               ? std::ldexp(fraction, 1 - bias - f.fraction_bits)
                               : std::ldexp((1 << f.fraction_bits) + fraction, exponent - bias - f.fraction_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

bool is_finite(const Format& f, uint16_t bits) {
  return (bits & 0x7FFF) >> f.fraction_bits != (1 << f.exponent_bits) - 1;
}

TEST(DTypeTest, EveryPatternHasItsValueAndComesBack) {
  for (const Format& f : kFormats) {
    for (uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
      const auto bits = static_cast<uint16_t>(pattern);
      const float value = f.value(bits);
      if (is_finite(f, bits)) {
        ASSERT_EQ(static_cast<double>(value), by_definition(f, bits)) << pattern;
        ASSERT_EQ(f.bits(value), bits);
      } else if (std::isinf(value)) {
        ASSERT_EQ(f.bits(value), bits);
      } else {
        ASSERT_TRUE(std::isnan(value) && std::isnan(f.value(f.bits(value)))) << pattern;
      }
    }
  }
}

TEST(DTypeTest, RoundsToNearestTiesToEven) {
  for (const Format& f : kFormats) {
    const uint16_t infinity = f.bits(std::numeric_limits<float>::infinity());
    for (uint16_t bits = 0; bits + 1 < infinity; ++bits) {
      const auto next = static_cast<uint16_t>(bits + 1);
      const float low = f.value(bits);
      const float high = f.value(next);
      const float middle = static_cast<float>((static_cast<double>(low) + high) / 2);
      ASSERT_EQ(f.bits(middle), bits % 2 == 0 ? bits : next);
      ASSERT_EQ(f.bits(std::nextafter(middle, low)), bits);
      ASSERT_EQ(f.bits(std::nextafter(middle, high)), next);
      ASSERT_EQ(f.bits(-middle), (bits % 2 == 0 ? bits : next) | 0x8000);
    }
    EXPECT_EQ(f.bits(std::numeric_limits<float>::max()), infinity);
  }
}

TEST(RandomTest, NormalHasMeanZeroAndVarianceOne) {
  constexpr int kCount = 100'000;
  Random random(1);
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

}  // namespace
}  // namespace cuflash::test
