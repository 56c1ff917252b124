// SPDX-License-Identifier: MIT
// Rounding of the host kernel to fp16 and bf16: every representable value, and both sides of every boundary.
#include "kernels/host/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/dtype.h"

namespace cuflash::test {
namespace {

template <class T>
struct Format;

template <>
struct Format<__half> {
  static constexpr uint16_t kInfinity = 0x7C00;
  static double value(uint16_t bits) { return fp16_value(bits); }
};

template <>
struct Format<__nv_bfloat16> {
  static constexpr uint16_t kInfinity = 0x7F80;
  static double value(uint16_t bits) { return bf16_value(bits); }
};

template <class T>
uint16_t rounded(double x) {
  return std::bit_cast<uint16_t>(host::from_double<T>(x));
}

template <class T>
class ConvertTest : public testing::Test {};

using Formats = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(ConvertTest, Formats);

TYPED_TEST(ConvertTest, ReadsEveryValueAndWritesItBack) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const double value = host::to_double(std::bit_cast<TypeParam>(bits));
    if ((bits & 0x7FFF) > Format<TypeParam>::kInfinity) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_GT(rounded<TypeParam>(value) & 0x7FFF, Format<TypeParam>::kInfinity) << bits;
    } else {
      ASSERT_EQ(value, Format<TypeParam>::value(bits)) << bits;
      ASSERT_EQ(rounded<TypeParam>(value), bits) << bits;
    }
  }
}

// The middle of two neighbours goes to the even one. What is a 2^-52nd part off it goes to the nearer one, but not if
// it is first rounded to float: there it becomes the middle.
TYPED_TEST(ConvertTest, RoundsOnceToNearestEven) {
  for (uint16_t bits = 0; bits < Format<TypeParam>::kInfinity; ++bits) {
    const auto next = static_cast<uint16_t>(bits + 1);
    const double low = Format<TypeParam>::value(bits);
    // Infinity takes the place of the number that would follow the largest one.
    const double high = next == Format<TypeParam>::kInfinity
                            ? 2.0 * low - Format<TypeParam>::value(static_cast<uint16_t>(bits - 1))
                            : Format<TypeParam>::value(next);
    const double middle = (low + high) / 2.0;
    const uint16_t even = bits % 2 == 0 ? bits : next;
    ASSERT_EQ(rounded<TypeParam>(middle), even) << bits;
    ASSERT_EQ(rounded<TypeParam>(std::nextafter(middle, 0.0)), bits) << bits;
    ASSERT_EQ(rounded<TypeParam>(std::nextafter(middle, high)), next) << bits;
    ASSERT_EQ(rounded<TypeParam>(-std::nextafter(middle, high)), next | 0x8000) << bits;
  }
}

TYPED_TEST(ConvertTest, KeepsExtremes) {
  constexpr uint16_t kInfinity = Format<TypeParam>::kInfinity;
  EXPECT_EQ(rounded<TypeParam>(std::numeric_limits<double>::infinity()), kInfinity);
  EXPECT_EQ(rounded<TypeParam>(-std::numeric_limits<double>::infinity()), kInfinity | 0x8000);
  EXPECT_EQ(rounded<TypeParam>(1e300), kInfinity);
  EXPECT_EQ(rounded<TypeParam>(1e-300), 0);
  EXPECT_EQ(rounded<TypeParam>(-1e-300), 0x8000);
  EXPECT_EQ(rounded<TypeParam>(-0.0), 0x8000);
}

}  // namespace
}  // namespace cuflash::test
