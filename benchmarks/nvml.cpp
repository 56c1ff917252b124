// SPDX-License-Identifier: MIT
#include "nvml.h"

#include <dlfcn.h>

namespace cuflash::bench {

struct Nvml::Functions {
  int (*init)();
  int (*shutdown)();
  int (*device)(const char* pci_bus_id, void** device);
  int (*clock)(void* device, int type, unsigned* mhz);
  int (*max_clock)(void* device, int type, unsigned* mhz);
  int (*power_limit)(void* device, unsigned* milliwatts);
  int (*driver_version)(char* version, unsigned length);
};

Nvml::Nvml() : functions_(std::make_unique<Functions>()) {}

Nvml::~Nvml() {
  if (initialised_) functions_->shutdown();
}

std::unique_ptr<Nvml> Nvml::open(const std::string& pci_bus_id) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  bool complete = true;
  const auto find = [&]<class Function>(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    complete = complete && function != nullptr;
  };
  std::unique_ptr<Nvml> nvml(new Nvml);
  Functions& f = *nvml->functions_;
  find("nvmlInit_v2", f.init);
  find("nvmlShutdown", f.shutdown);
  find("nvmlDeviceGetHandleByPciBusId_v2", f.device);
  find("nvmlDeviceGetClockInfo", f.clock);
  find("nvmlDeviceGetMaxClockInfo", f.max_clock);
  find("nvmlDeviceGetEnforcedPowerLimit", f.power_limit);
  find("nvmlSystemGetDriverVersion", f.driver_version);
  if (!complete || f.init() != 0) return nullptr;
  nvml->initialised_ = true;
  if (f.device(pci_bus_id.c_str(), &nvml->device_) != 0) return nullptr;
  return nvml;
}

std::optional<unsigned> Nvml::clock_mhz(Clock clock) const {
  unsigned mhz = 0;
  if (functions_->clock(device_, static_cast<int>(clock), &mhz) != 0) return std::nullopt;
  return mhz;
}

std::optional<unsigned> Nvml::max_clock_mhz(Clock clock) const {
  unsigned mhz = 0;
  if (functions_->max_clock(device_, static_cast<int>(clock), &mhz) != 0) return std::nullopt;
  return mhz;
}

std::optional<double> Nvml::power_limit_watts() const {
  unsigned milliwatts = 0;
  if (functions_->power_limit(device_, &milliwatts) != 0) return std::nullopt;
  return 1e-3 * milliwatts;
}

std::optional<std::string> Nvml::driver_version() const {
  char version[80] = "";
  if (functions_->driver_version(version, sizeof(version)) != 0) return std::nullopt;
  return version;
}

}  // namespace cuflash::bench
