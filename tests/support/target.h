// SPDX-License-Identifier: MIT
// Where the calls of a test program run: a program is linked with target_host.cpp or with target_cuda.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "cuflash/cuflash.h"

namespace cuflash::test {

// Memory that a call can use, until the object dies. Failures throw std::runtime_error.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* reserve(size_t bytes) = 0;  // aligned to kBufferAlignment, content undefined
  virtual void write(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void read(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual cuflashStream_t stream() const = 0;  // write, read and calls are in its order
  virtual void finish() = 0;                   // waits for the stream
};

class Target {
 public:
  virtual ~Target() = default;
  virtual cuflashDevice_t device() const = 0;

  // Why nothing can run here; empty if it can.
  virtual std::string unusable() const = 0;

  // Cheap memory for one case at a time: other threads wait until it is given back.
  virtual std::unique_ptr<Memory> open() = 0;

  // Each reserve() is an allocation of exactly that size, so that memory checkers know its end; several may be open.
  virtual std::unique_ptr<Memory> open_exact() = 0;
};

Target& target();

}  // namespace cuflash::test
