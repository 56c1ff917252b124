// SPDX-License-Identifier: MIT
// A case made ready to run: geometry, the image with all inputs and poison, and the parameter structs of the call.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "case.h"
#include "cuflash/cuflash.h"
#include "geometry.h"

namespace cuflash::test {

// What outputs and workspace hold before a call; what they held must never matter.
enum class Poison : uint8_t {
  kNan = 0xFF,   // NaN in every dtype, -1 as an integer
  kHuge = 0x7F,  // finite and near the largest number in fp32 and bf16, NaN in fp16
  kZero = 0x00
};

struct Scenario {
  Case c;
  Geometry geometry;
  std::vector<std::byte> image;

  float scale() const;  // what the call's 0 means
  Poison poison() const;

  const std::byte* data(const View& view, int64_t batch, int64_t row, int32_t head) const;
  std::byte* data(const View& view, int64_t batch, int64_t row, int32_t head);
  float* floats(Buffer buffer);  // lse, dlse, slopes
  const float* floats(Buffer buffer) const;
  float slope(int32_t entry, int32_t head) const;  // 0 without ALiBi
};

// Inputs are filled in; o and lse of a backward case are still poison: see fill_forward_results() of reference.h.
Scenario make_scenario(const Case& c);

// Where each buffer of a scenario lies in the memory that the call sees.
using Addresses = std::array<std::byte*, kNumBuffers>;
Addresses addresses_in(const Geometry& geometry, std::byte* image);

cuflashForwardParams_t forward_params(const Scenario& scenario, const Addresses& addresses, cuflashDevice_t device);
cuflashBackwardParams_t backward_params(const Scenario& scenario, const Addresses& addresses, cuflashDevice_t device);

}  // namespace cuflash::test
