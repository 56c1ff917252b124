// SPDX-License-Identifier: MIT
#pragma once

#include "registry.h"

namespace cuflash::scalar {

extern const ForwardFamily kForward;
extern const BackwardFamily kBackward;

}  // namespace cuflash::scalar
