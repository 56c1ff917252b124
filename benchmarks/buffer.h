// SPDX-License-Identifier: MIT
// Memory on the GPU or in the host, owned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuflash/cuflash.h"

namespace cuflash::bench {

class Buffer {
 public:
  Buffer() = default;
  Buffer(size_t bytes, cuflashDevice_t device);  // uninitialised; throws Failure

  void* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

  void fill_normal(cuflashDataType_t dtype, uint64_t seed);
  void poison();  // all bits one: NaN in every dtype
  std::vector<float> to_floats(cuflashDataType_t dtype) const;

 private:
  size_t bytes_ = 0;
  cuflashDevice_t device_ = CUFLASH_DEVICE_HOST;
  std::unique_ptr<void, void (*)(void*)> data_{nullptr, nullptr};
};

}  // namespace cuflash::bench
