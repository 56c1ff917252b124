// SPDX-License-Identifier: MIT
#include "status.h"

#include <cstdarg>
#include <cstdio>

#include "runtime.h"

namespace cuflash {
namespace {

constexpr int kMessageBytes = 2048;
thread_local char message[kMessageBytes] = "";

}  // namespace

Status fail(cuflashStatus_t code, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  return Status(code);
}

const char* last_error_message() { return message; }

const char* status_name(cuflashStatus_t code) {
  switch (code) {
    case CUFLASH_STATUS_SUCCESS: return "CUFLASH_STATUS_SUCCESS";
    case CUFLASH_STATUS_INVALID_ARGUMENT: return "CUFLASH_STATUS_INVALID_ARGUMENT";
    case CUFLASH_STATUS_NOT_SUPPORTED: return "CUFLASH_STATUS_NOT_SUPPORTED";
    case CUFLASH_STATUS_WORKSPACE_TOO_SMALL: return "CUFLASH_STATUS_WORKSPACE_TOO_SMALL";
    case CUFLASH_STATUS_CUDA_ERROR: return "CUFLASH_STATUS_CUDA_ERROR";
    case CUFLASH_STATUS_INTERNAL_ERROR: return "CUFLASH_STATUS_INTERNAL_ERROR";
    case CUFLASH_STATUS_NO_DEVICE: return "CUFLASH_STATUS_NO_DEVICE";
    default: return "unknown cuflashStatus_t";
  }
}

Status check_cuda(int cuda_error, const char* call) {
  switch (cuda_error) {
    case cudaSuccess: return Status();
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorStubLibrary:
      return fail(
          CUFLASH_STATUS_NO_DEVICE,
          "no usable CUDA driver or device (%s, %d); set device to CUFLASH_DEVICE_HOST to run on the CPU",
          runtime::error_name(cuda_error),
          cuda_error
      );
    default:
      return fail(CUFLASH_STATUS_CUDA_ERROR, "%s failed: %s (%d)", call, runtime::error_name(cuda_error), cuda_error);
  }
}

}  // namespace cuflash
