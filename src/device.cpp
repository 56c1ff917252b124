// SPDX-License-Identifier: MIT
#include "device.h"

#include <array>
#include <atomic>
#include <mutex>

#include "runtime.h"

namespace cuflash {
namespace {

struct Slot {
  std::atomic<bool> ready{false};
  Device device;
};

Status query(int ordinal, Device* device) {
  int major = 0, minor = 0, num_sms = 0, max_shared_bytes = 0;
  CUFLASH_CUDA(runtime::get_attribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
  CUFLASH_CUDA(runtime::get_attribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal));
  CUFLASH_CUDA(runtime::get_attribute(&num_sms, cudaDevAttrMultiProcessorCount, ordinal));
  CUFLASH_CUDA(runtime::get_attribute(&max_shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal));
  *device = {.ordinal = ordinal, .sm = major * 10 + minor, .num_sms = num_sms, .max_shared_bytes = max_shared_bytes};
  return Status();
}

}  // namespace

Status current_device(Device* device) {
  static std::array<Slot, 64> slots;
  static std::mutex filling;

  int ordinal = 0;
  CUFLASH_CUDA(runtime::get_device(&ordinal));
  if (ordinal < 0 || ordinal >= static_cast<int>(slots.size())) return query(ordinal, device);

  Slot& slot = slots[static_cast<size_t>(ordinal)];
  if (!slot.ready.load(std::memory_order_acquire)) {
    const std::lock_guard lock(filling);
    if (!slot.ready.load(std::memory_order_relaxed)) {
      CUFLASH_TRY(query(ordinal, &slot.device));  // a failure is not kept: the next call asks again
      slot.ready.store(true, std::memory_order_release);
    }
  }
  *device = slot.device;
  return Status();
}

}  // namespace cuflash
