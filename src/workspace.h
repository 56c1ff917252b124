// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuflash {

inline constexpr size_t kWorkspaceAlignment = 256;

// Hands out aligned pieces of a workspace. A room writes one function that takes its pieces: run with a null base it
// measures the size, run with the workspace it yields the pointers, so the two cannot differ.
class WorkspaceCarver {
 public:
  explicit WorkspaceCarver(void* base = nullptr) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(int64_t count) {
    T* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    bytes_ += (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    return piece;
  }

  size_t bytes() const { return bytes_; }

 private:
  char* base_;
  size_t bytes_ = 0;
};

}  // namespace cuflash
