// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

namespace cuflash::test {

inline void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(error) + " (" + cudaGetErrorString(error) + ")");
}

}  // namespace cuflash::test
