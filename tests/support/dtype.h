// SPDX-License-Identifier: MIT
// The element types in plain integer arithmetic: tests must not depend on the conversions of the code under test.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cuflash::test {

// The values are those of cuflashDataType_t.
enum class DType : int32_t { kFp32 = 0, kFp16 = 2, kBf16 = 14 };

inline constexpr DType kAllDTypes[] = {DType::kFp32, DType::kFp16, DType::kBf16};

constexpr size_t size_of(DType dtype) { return dtype == DType::kFp32 ? 4 : 2; }

// Largest relative error of rounding a normal number, and largest absolute error of rounding a subnormal one.
constexpr double unit_roundoff(DType dtype) {
  return dtype == DType::kFp32 ? 0x1p-24 : dtype == DType::kFp16 ? 0x1p-11 : 0x1p-8;
}
constexpr double half_smallest_subnormal(DType dtype) {
  return dtype == DType::kFp32 ? 0x1p-150 : dtype == DType::kFp16 ? 0x1p-25 : 0x1p-134;
}

inline uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline float bf16_value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t fp16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {
    // Below 2^-14 an fp16 is a multiple of 2^-24, which is the spacing of fp32 numbers from 0.5 to 1.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  }
  const uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

inline float fp16_value(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1F;
  const uint32_t fraction = bits & 0x3FF;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide_exponent = exponent == 0x1F ? 0xFF : exponent + 112;
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (fraction << 13));
}

inline float round_to(DType dtype, float value) {
  switch (dtype) {
    case DType::kFp16: return fp16_value(fp16_bits(value));
    case DType::kBf16: return bf16_value(bf16_bits(value));
    default: return value;
  }
}

inline void store(DType dtype, std::byte* where, float value) {
  if (dtype == DType::kFp32) {
    std::memcpy(where, &value, sizeof(value));
    return;
  }
  const uint16_t bits = dtype == DType::kFp16 ? fp16_bits(value) : bf16_bits(value);
  std::memcpy(where, &bits, sizeof(bits));
}

inline float load(DType dtype, const std::byte* where) {
  if (dtype == DType::kFp32) {
    float value;
    std::memcpy(&value, where, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, where, sizeof(bits));
  return dtype == DType::kFp16 ? fp16_value(bits) : bf16_value(bits);
}

}  // namespace cuflash::test
