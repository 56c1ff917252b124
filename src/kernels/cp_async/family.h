// SPDX-License-Identifier: MIT
#pragma once

#include "registry.h"

namespace cuflash::cp_async {

extern const ForwardFamily kForward;
extern const BackwardFamily kBackward;

}  // namespace cuflash::cp_async
