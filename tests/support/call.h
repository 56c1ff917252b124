// SPDX-License-Identifier: MIT
// The calls of the public C ABI for one case and one kernel, and the placing of a case in memory.
#pragma once

#include <string>
#include <vector>

#include "scenario.h"
#include "target.h"

namespace cuflash::test {

struct Kernel {
  Op op;
  const char* name;
  int32_t dtypes;  // CUFLASH_DTYPE_BIT_...
};

// All kernels of this operation on this device, in order of preference.
std::vector<Kernel> kernels_of(Op op, cuflashDevice_t device);

// Params of either direction.
struct Call {
  Op op;
  cuflashForwardParams_t forward;
  cuflashBackwardParams_t backward;

  Call(const Scenario& scenario, const Addresses& addresses, cuflashDevice_t device, const char* kernel);

  cuflashStatus_t workspace_size(size_t* bytes) const;
  cuflashStatus_t preload() const;
  cuflashStatus_t run(void* workspace, size_t workspace_bytes, cuflashStream_t stream) const;
};

enum class Placement {
  kGuarded,  // the whole image with its red zones in one piece; the workspace poisoned, between red zones
  kExact     // each buffer in an allocation of its own, no red zones, workspace not initialised: for memory checkers
};

// A case placed in memory, ready to be called as often as wanted.
class Execution {
 public:
  Execution(const Scenario& scenario, const char* kernel, Memory& memory, Placement placement = Placement::kGuarded);

  // Of the size query, which decides whether the kernel accepts the case.
  cuflashStatus_t accepted() const { return accepted_; }
  const Call& call() const { return call_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  void* workspace() const { return workspace_; }
  const Addresses& addresses() const { return addresses_; }

  cuflashStatus_t run() { return run(memory_.stream()); }
  cuflashStatus_t run(cuflashStream_t stream);

  // Writes the scenario's image, or another of the same geometry, again.
  void reset(const std::vector<std::byte>& image);

  // The image as it is now; waits for the calls before.
  std::vector<std::byte> read();

  // The same for one buffer.
  void read(Buffer buffer, std::vector<std::byte>* content);

  // Empty, or how the workspace's red zones changed; waits.
  std::string check_workspace();

 private:
  Addresses place();
  void reserve_workspace();

  const Scenario& scenario_;
  Memory& memory_;
  Placement placement_;
  std::byte* image_ = nullptr;
  Addresses addresses_;
  Call call_;
  size_t workspace_bytes_ = 0;
  cuflashStatus_t accepted_;  // set together with workspace_bytes_
  std::byte* workspace_ = nullptr;
};

}  // namespace cuflash::test
