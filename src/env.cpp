// SPDX-License-Identifier: MIT
#include "env.h"

#include <cstdlib>
#include <cstring>

namespace cuflash {
namespace {

// The text is copied: a later setenv() may free what getenv() returned.
struct Loaded {
  char kernel_name[64] = "";
  Environment environment;

  Loaded() {
    if (const char* kernel = std::getenv("CUFLASH_KERNEL"); kernel != nullptr && kernel[0] != '\0') {
      std::strncpy(kernel_name, kernel, sizeof(kernel_name) - 1);
      environment.kernel = kernel_name;
    }
    const char* log = std::getenv("CUFLASH_LOG");
    environment.log_dispatch = log != nullptr && std::strcmp(log, "dispatch") == 0;
  }
};

}  // namespace

const Environment& environment() {
  static const Loaded loaded;
  return loaded.environment;
}

}  // namespace cuflash
