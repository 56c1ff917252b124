// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nvml.h"

namespace cuflash::bench {

struct Gpu {
  std::string name;
  std::string pci_bus_id;
  int sm = 0;  // 90 for compute capability 9.0
  int num_sms = 0;
  int l2_bytes = 0;
  size_t memory_bytes = 0;
};

// The current CUDA device. Nothing if there is none; *reason then says why.
std::optional<Gpu> find_gpu(std::string* reason);

// Names and values that describe GPU, driver and clocks at this moment. nvml may be null.
std::vector<std::pair<std::string, std::string>> describe_gpu(const Gpu& gpu, const Nvml* nvml);

}  // namespace cuflash::bench
