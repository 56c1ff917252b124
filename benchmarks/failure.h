// SPDX-License-Identifier: MIT
// Inside the benchmark a failing call is an exception: it fails one benchmark, and the next one still runs.
#pragma once

#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

#include "cuflash/cuflash.h"

namespace cuflash::bench {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw Failure(std::string(call) + ": " + cudaGetErrorName(error));
}

inline void require(cuflashStatus_t status, const char* call) {
  if (status == CUFLASH_STATUS_SUCCESS) return;
  throw Failure(std::string(call) + ": " + cuflashGetStatusString(status) + ", " + cuflashGetLastErrorMessage());
}

}  // namespace cuflash::bench
