// SPDX-License-Identifier: MIT
#pragma once

#include "registry.h"

namespace cuflash::register_tiled {

extern const ForwardFamily kForward;
extern const BackwardFamily kBackward;

}  // namespace cuflash::register_tiled
