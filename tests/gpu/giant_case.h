// SPDX-License-Identifier: MIT
// A case too large for the host: its buffers live on the device alone, filled there, and rows drawn from the results
// are compared with the reference of the rows that they see.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/call.h"
#include "support/scenario.h"

namespace cuflash::test {

class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  void* data_ = nullptr;
};

class GiantCase {
 public:
  // The line without op: both directions share the buffers. Heads must not share keys.
  explicit GiantCase(const std::string& line);

  // Device memory for all buffers of the case, and the most that a kernel may ask for as workspace: as much again.
  size_t bytes() const;
  size_t most_workspace_bytes() const;

  // Allocates and fills.
  void place();

  // The kernels of a direction that accept the case.
  std::vector<Kernel> kernels(Op op) const;

  // Runs the kernel into poisoned outputs; empty, or what is wrong. Backward takes o and lse as the last forward call
  // has left them.
  std::string run(const Kernel& kernel);

 private:
  const Scenario& scenario(Op op) const { return op == Op::kForward ? forward_ : backward_; }
  const Case& c() const { return forward_.c; }
  std::byte* data(Buffer buffer) const { return addresses_[static_cast<size_t>(buffer)]; }

  void fill(Buffer buffer, DType dtype, uint64_t seed);
  void poison(Buffer buffer);
  std::string call(const Kernel& kernel);

  struct Sample {
    size_t entry;
    int32_t head;
    int32_t row;  // of the query side or the key side
  };
  std::vector<Sample> samples(const Side& side, int32_t rows_seen) const;
  std::string check_query_row(Op op, const Sample& sample) const;
  std::string check_key_row(const Sample& sample) const;

  struct RowRange {
    int32_t begin, end;
  };
  RowRange keys_of(size_t entry, int32_t query) const;
  RowRange queries_of(size_t entry, int32_t key) const;

  // A case of one head over the given rows of this one, all of which see each other.
  Scenario small(Op op, size_t entry, int32_t head, RowRange queries, RowRange keys) const;
  void fetch(const View& view, const Rows& rows, int32_t head, RowRange range, std::byte* to) const;
  void fetch_lse(Buffer buffer, size_t entry, int32_t head, RowRange range, float* to) const;

  Scenario forward_;
  Scenario backward_;
  Addresses addresses_{};
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

}  // namespace cuflash::test
