// SPDX-License-Identifier: MIT
#include "lab.h"

#include <utility>

namespace cuflash::bench {

Lab::Lab(Options given) : options(std::move(given)) {
  gpu = find_gpu(&no_gpu_reason);
  if (!gpu) {
    no_cublas_reason = "no GPU: " + no_gpu_reason;
    return;
  }
  nvml = Nvml::open(gpu->pci_bus_id);
  cublas = Cublas::open(options.cublas, &no_cublas_reason);
  timer = std::make_unique<DeviceTimer>();
}

}  // namespace cuflash::bench
