// SPDX-License-Identifier: MIT
// The dynamic shared memory of the block that runs. Every room declares an array of its own; they are one and the same.
#include <cstddef>

#include "device.h"

extern "C" {
alignas(1024) std::byte cuflash_emulated_shared_memory[emulator::kSharedBytes];
}

namespace cuflash {

#define CUFLASH_SHARED_MEMORY __attribute__((alias("cuflash_emulated_shared_memory")))
namespace scalar {
extern float shared[] CUFLASH_SHARED_MEMORY;
}
namespace register_tiled {
extern float shared[] CUFLASH_SHARED_MEMORY;
}
namespace wmma {
extern unsigned char shared[] CUFLASH_SHARED_MEMORY;
}
namespace cp_async {
extern unsigned char shared[] CUFLASH_SHARED_MEMORY;
}
namespace sm90 {
extern unsigned char shared[] CUFLASH_SHARED_MEMORY;
}

}  // namespace cuflash
