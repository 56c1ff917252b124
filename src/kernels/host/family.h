// SPDX-License-Identifier: MIT
#pragma once

#include "registry.h"

namespace cuflash::host {

extern const ForwardFamily kForward;
extern const BackwardFamily kBackward;

}  // namespace cuflash::host
