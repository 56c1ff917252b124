// SPDX-License-Identifier: MIT
// The result of every internal function, the thread's last message, and the three macros of the library.
#pragma once

#include "cuflash/cuflash.h"

namespace cuflash {

class [[nodiscard]] Status {
 public:
  constexpr Status() = default;  // success
  constexpr explicit Status(cuflashStatus_t code) : code_(code) {}
  constexpr bool ok() const { return code_ == CUFLASH_STATUS_SUCCESS; }
  constexpr cuflashStatus_t code() const { return code_; }

 private:
  cuflashStatus_t code_ = CUFLASH_STATUS_SUCCESS;
};

// Formats the thread's message into a fixed buffer (a failing path must not allocate) and returns the code.
[[gnu::format(printf, 2, 3)]] Status fail(cuflashStatus_t code, const char* format, ...);

const char* last_error_message();
const char* status_name(cuflashStatus_t code);

// Maps the result of a runtime call: 0 is success; a missing driver or device is one status; anything else names the call.
Status check_cuda(int cuda_error, const char* call);

}  // namespace cuflash

// For arguments; the message names the argument, its value and the rule.
#define CUFLASH_REQUIRE(condition, ...)                                                     \
  do {                                                                                      \
    if (!(condition)) return ::cuflash::fail(CUFLASH_STATUS_INVALID_ARGUMENT, __VA_ARGS__); \
  } while (false)

#define CUFLASH_TRY(expression)                                                                 \
  do {                                                                                          \
    if (const ::cuflash::Status try_status = (expression); !try_status.ok()) return try_status; \
  } while (false)

#define CUFLASH_CUDA(call) CUFLASH_TRY(::cuflash::check_cuda((call), #call))
