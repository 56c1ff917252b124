// SPDX-License-Identifier: MIT
#pragma once

#include "registry.h"

namespace cuflash::wmma {

extern const ForwardFamily kForward;
extern const BackwardFamily kBackward;

}  // namespace cuflash::wmma
