// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "status.h"

namespace cuflash {

// What the dispatch knows of the GPU: plain data, so that tests can inject any GPU. All zero for the host.
struct Device {
  int32_t ordinal = 0;
  int32_t sm = 0;  // compute capability, 90 for 9.0
  int32_t num_sms = 0;
  int32_t max_shared_bytes = 0;  // per block, opt-in
};

// The thread's current device. Properties are read at the first call for each ordinal and kept.
Status current_device(Device* device);

}  // namespace cuflash
