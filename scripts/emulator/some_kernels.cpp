// SPDX-License-Identifier: MIT
// For LD_PRELOAD: the library as if it had no kernels but those that CUFLASH_EMULATOR_KERNELS names, between commas. Tests
// that run every kernel by name then run these, which is enough when a fault is planted in one of them.
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cuflash/cuflash.h"

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// The library asks its own functions too, and must hear the truth.
thread_local bool inside_of_library = false;

int32_t full_count() { return next<decltype(cuflashGetKernelCount)>("cuflashGetKernelCount")(); }

cuflashStatus_t full_info(int32_t row, cuflashKernelInfo_t* info) {
  inside_of_library = true;
  const cuflashStatus_t status = next<decltype(cuflashGetKernelInfo)>("cuflashGetKernelInfo")(row, info);
  inside_of_library = false;
  return status;
}

std::vector<int32_t> rows_of_the_kernel() {
  const char* variable = std::getenv("CUFLASH_EMULATOR_KERNELS");
  const std::string names = variable == nullptr ? "" : std::string(",") + variable + ",";
  std::vector<int32_t> rows;
  for (int32_t row = 0; row < full_count(); ++row) {
    cuflashKernelInfo_t info{};
    info.struct_size = sizeof(info);
    if (full_info(row, &info) != CUFLASH_STATUS_SUCCESS) std::abort();
    const std::string name = std::string(",") + info.name + ",";
    if (names.find(name) != std::string::npos) rows.push_back(row);
  }
  return rows;
}

const std::vector<int32_t>& rows() {
  static const std::vector<int32_t> found = rows_of_the_kernel();
  return found;
}

}  // namespace

extern "C" int32_t cuflashGetKernelCount() {
  return inside_of_library ? full_count() : static_cast<int32_t>(rows().size());
}

extern "C" cuflashStatus_t cuflashGetKernelInfo(int32_t index, cuflashKernelInfo_t* info) {
  const bool exists = index >= 0 && index < cuflashGetKernelCount();
  return full_info(exists ? rows()[index] : -1, info);
}
