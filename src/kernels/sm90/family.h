// SPDX-License-Identifier: MIT
#pragma once

#include "registry.h"

namespace cuflash::sm90 {

extern const ForwardFamily kForward;
extern const BackwardFamily kBackward;

}  // namespace cuflash::sm90
