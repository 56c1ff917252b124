// SPDX-License-Identifier: MIT
#pragma once

#include <tuple>
#include <utility>

#include "launch.h"

namespace cuflash {

// launch(context, "room fwd", kernel, shape, arguments...): arguments are converted to the kernel's parameter types.
template <class... Params, class... Args>
Status launch(
    const LaunchContext& context, const char* name, void (*kernel)(Params...), const LaunchShape& shape, Args&&... args
) {
  std::tuple<Params...> values(std::forward<Args>(args)...);
  return std::apply(
      [&](Params&... value) {
        void* pointers[] = {static_cast<void*>(&value)...};
        return launch_kernel(context, name, reinterpret_cast<const void*>(kernel), shape, pointers);
      },
      values
  );
}

}  // namespace cuflash
