// SPDX-License-Identifier: MIT
// A warp, for host and device code.
#pragma once

namespace cuflash {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullWarp = 0xffffffffu;  // all lanes

}  // namespace cuflash
