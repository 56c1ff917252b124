// SPDX-License-Identifier: MIT
// In place of src/launch.cuh: also tells the emulated device how to call the kernel, which on a GPU its code knows.
#pragma once

#include <tuple>
#include <utility>

#include "device.h"
#include "launch.h"

extern "C" std::byte cuflash_emulated_shared_memory[];

namespace emulator {

template <class... Params>
void call_kernel(const void* kernel, void** arguments) {
  const auto function = reinterpret_cast<void (*)(Params...)>(const_cast<void*>(kernel));
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    function(*static_cast<std::remove_reference_t<Params>*>(arguments[kIndex])...);
  }
  (std::index_sequence_for<Params...>{});
}

}  // namespace emulator

namespace cuflash {

template <class... Params, class... Args>
Status launch(
    const LaunchContext& context, const char* name, void (*kernel)(Params...), const LaunchShape& shape, Args&&... args
) {
  const auto* address = reinterpret_cast<const void*>(kernel);
  emulator::remember_kernel(address, {&emulator::call_kernel<Params...>, cuflash_emulated_shared_memory});
  std::tuple<Params...> values(std::forward<Args>(args)...);
  return std::apply(
      [&](Params&... value) {
        void* pointers[] = {static_cast<void*>(&value)...};
        return launch_kernel(context, name, address, shape, pointers);
      },
      values
  );
}

}  // namespace cuflash
