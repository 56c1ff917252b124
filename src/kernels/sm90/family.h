// SPDX-License-Identifier: MIT
#pragma once

#include "registry.h"

namespace cuflash::sm90 {

extern const ForwardFamily kForward;

}  // namespace cuflash::sm90
