// SPDX-License-Identifier: MIT
#include "gpu.h"

#include <cstdio>

#include <cuda_runtime_api.h>

#include "failure.h"

namespace cuflash::bench {
namespace {

std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string text_or_unknown(std::optional<unsigned> value) { return value ? std::to_string(*value) : "unknown"; }

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f", value);
  return text;
}

// Without NVML the runtime still knows the highest clocks, in kHz.
std::string max_clock(const Nvml* nvml, Nvml::Clock clock, cudaDeviceAttr attribute) {
  if (nvml != nullptr) {
    if (const auto mhz = nvml->max_clock_mhz(clock)) return std::to_string(*mhz);
  }
  int device = 0, khz = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return "unknown";
  if (cudaDeviceGetAttribute(&khz, attribute, device) != cudaSuccess || khz == 0) return "unknown";
  return std::to_string(khz / 1000);
}

std::string driver(const Nvml* nvml) {
  int version = 0;
  require(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  const std::string cuda = "CUDA " + cuda_version(version);
  const auto name = nvml != nullptr ? nvml->driver_version() : std::nullopt;
  return name ? *name + " (" + cuda + ")" : cuda;
}

}  // namespace

std::optional<Gpu> find_gpu(std::string* reason) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    *reason = error == cudaSuccess ? "no CUDA device" : cudaGetErrorString(error);
    return std::nullopt;
  }
  int device = 0;
  cudaDeviceProp properties{};
  char pci_bus_id[32] = "";
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  require(cudaDeviceGetPCIBusId(pci_bus_id, sizeof(pci_bus_id), device), "cudaDeviceGetPCIBusId");
  return Gpu{
      .name = properties.name,
      .pci_bus_id = pci_bus_id,
      .sm = properties.major * 10 + properties.minor,
      .num_sms = properties.multiProcessorCount,
      .l2_bytes = properties.l2CacheSize,
      .memory_bytes = properties.totalGlobalMem,
  };
}

std::vector<std::pair<std::string, std::string>> describe_gpu(const Gpu& gpu, const Nvml* nvml) {
  int runtime = 0;
  require(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  const auto clock = [&](Nvml::Clock which) {
    return text_or_unknown(nvml != nullptr ? nvml->clock_mhz(which) : std::nullopt);
  };
  const auto watts = nvml != nullptr ? nvml->power_limit_watts() : std::nullopt;
  return {
      {"gpu", gpu.name},
      {"compute_capability", std::to_string(gpu.sm / 10) + "." + std::to_string(gpu.sm % 10)},
      {"num_sms", std::to_string(gpu.num_sms)},
      {"l2_mib", rounded(gpu.l2_bytes / 1048576.0)},
      {"memory_gib", rounded(static_cast<double>(gpu.memory_bytes) / 1073741824.0)},
      {"driver", driver(nvml)},
      {"cuda_runtime", cuda_version(runtime)},
      {"sm_clock_mhz_at_start", clock(Nvml::Clock::kSm)},
      {"sm_clock_mhz_max", max_clock(nvml, Nvml::Clock::kSm, cudaDevAttrClockRate)},
      {"memory_clock_mhz_at_start", clock(Nvml::Clock::kMemory)},
      {"memory_clock_mhz_max", max_clock(nvml, Nvml::Clock::kMemory, cudaDevAttrMemoryClockRate)},
      {"power_limit_w", watts ? rounded(*watts) : "unknown"},
  };
}

}  // namespace cuflash::bench
