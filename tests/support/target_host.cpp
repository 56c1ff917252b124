// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "geometry.h"
#include "target.h"

namespace cuflash::test {
namespace {

struct Free {
  void operator()(std::byte* data) const { std::free(data); }
};

class HostMemory : public Memory {
 public:
  std::byte* reserve(size_t bytes) override {
    const size_t size = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(kBufferAlignment, size));
    if (data == nullptr) throw std::bad_alloc();
    blocks_.emplace_back(data);
    return data;
  }
  void write(std::byte* to, const std::byte* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void read(std::byte* to, const std::byte* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  cuflashStream_t stream() const override { return nullptr; }
  void finish() override {}

 private:
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
};

class HostTarget : public Target {
 public:
  cuflashDevice_t device() const override { return CUFLASH_DEVICE_HOST; }
  std::string unusable() const override { return ""; }
  std::unique_ptr<Memory> open() override { return std::make_unique<HostMemory>(); }
  std::unique_ptr<Memory> open_exact() override { return open(); }
};

}  // namespace

Target& target() {
  static HostTarget host;
  return host;
}

}  // namespace cuflash::test
