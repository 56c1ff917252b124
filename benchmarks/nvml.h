// SPDX-License-Identifier: MIT
// Clocks and power limit from the driver's management library, loaded at run time.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace cuflash::bench {

class Nvml {
 public:
  // Null if the library or the device is not there.
  static std::unique_ptr<Nvml> open(const std::string& pci_bus_id);
  ~Nvml();

  enum class Clock { kSm = 1, kMemory = 2 };  // values of nvmlClockType_t

  // Nothing where the driver does not say.
  std::optional<unsigned> clock_mhz(Clock clock) const;
  std::optional<unsigned> max_clock_mhz(Clock clock) const;
  std::optional<double> power_limit_watts() const;
  std::optional<std::string> driver_version() const;

 private:
  struct Functions;
  Nvml();

  void* device_ = nullptr;
  bool initialised_ = false;
  std::unique_ptr<Functions> functions_;
};

}  // namespace cuflash::bench
