// SPDX-License-Identifier: MIT
// The environment, read once per process, at the first call that needs it.
#pragma once

namespace cuflash {

struct Environment {
  const char* kernel = nullptr;  // CUFLASH_KERNEL; null if unset or empty
  bool log_dispatch = false;     // CUFLASH_LOG=dispatch
};

const Environment& environment();

}  // namespace cuflash
