// SPDX-License-Identifier: MIT
// A case with its tensors, and the library's parameter structs for it.
#pragma once

#include <functional>

#include <cuda_runtime_api.h>

#include "buffer.h"
#include "cases.h"

namespace cuflash::bench {

// Order of a tensor's dimensions in memory: (batch, row, head, column) as FlashAttention has it, or (batch, head, row,
// column).
enum class Layout { kBshd, kBhsd };

// All but the pointers: enough for size query, explain and preload. kernel must outlive the result.
cuflashForwardParams_t forward_params(const Case& c, cuflashDevice_t device, Layout layout, const char* kernel);
cuflashBackwardParams_t backward_params(const Case& c, cuflashDevice_t device, Layout layout, const char* kernel);

struct Attention {
  Case problem;
  cuflashDevice_t device;
  Layout layout;
  Buffer q, k, v, o, lse;
  Buffer dout, dq, dk, dv;  // empty if the case is forward

  // Allocates everything and fills the inputs; for a backward case also runs the forward that backward continues.
  Attention(const Case& c, cuflashDevice_t where, Layout order);

  cuflashForwardParams_t forward(const char* kernel) const;
  cuflashBackwardParams_t backward(const char* kernel) const;
  void poison_outputs();
};

// Enqueues one call of what is measured.
using Call = std::function<void(cudaStream_t)>;

struct PreparedCall {
  Call call;
  size_t workspace_bytes = 0;
};

// The library's kernel of that name (NULL: its own choice), its code loaded and its workspace allocated. The call
// refers to the tensors.
PreparedCall prepare_library_call(const Attention& attention, const char* kernel);

}  // namespace cuflash::bench
