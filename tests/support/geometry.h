// SPDX-License-Identifier: MIT
// What a case means in memory: the rows of each batch entry, and one image of bytes that holds all buffers of a call.
//
//   | red zone | q | red zone | k | red zone | ... | dv | red zone |
//
// The image is filled on the host, copied to where the call runs and copied back afterwards: every byte that the call
// was not to write must be as before. Gaps inside a tensor hold poison as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "case.h"

namespace cuflash::test {

inline constexpr size_t kRedZoneBytes = 4096;
inline constexpr size_t kBufferAlignment = 256;

enum class Buffer {
  kQ,
  kK,
  kV,
  kO,
  kLse,
  kDout,
  kDlse,
  kDq,
  kDk,
  kDv,  // in kPacked layout several tensors share a buffer
  kCuSeqlensQ,
  kCuSeqlensK,
  kUsedQ,
  kUsedK,
  kAlibi
};
inline constexpr size_t kNumBuffers = 15;

struct Segment {
  size_t offset = 0;  // in the image, a multiple of kBufferAlignment
  size_t bytes = 0;   // 0: there is no such buffer
};

// A tensor inside of a buffer. Strides in elements.
struct View {
  Buffer buffer = Buffer::kQ;
  int64_t base = 0;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
  int32_t heads = 0;
  int32_t dim = 0;

  int64_t offset(int64_t batch, int64_t row, int32_t head) const {
    return base + batch * batch_stride + row * row_stride + head * head_stride;
  }
};

// Rows of one batch entry.
struct Rows {
  int64_t batch = 0;   // for batch_stride: the entry, or 0 if packed
  int64_t first = 0;   // row of the tensor
  int32_t length = 0;  // rows in use
};

// The query side or the key side of a call.
struct Side {
  int32_t seqlen = 0;                // the parameter: length or its upper bound
  int64_t batches = 0;               // extents of the tensors
  int64_t rows = 0;                  // of one batch of the tensors: seqlen or total
  int64_t total = 0;                 // the parameter: 0 unless packed
  std::vector<int32_t> cu_seqlens;   // empty: not packed
  std::vector<int32_t> seqused;      // empty: none
  std::vector<Rows> entries;         // one per batch entry
  std::vector<int64_t> first_index;  // of an entry's row 0 if used rows of all entries are counted through

  int64_t used_rows = 0;
};

struct Geometry {
  Side q;
  Side k;
  View tensor_q, tensor_k, tensor_v, tensor_o, tensor_dout, tensor_dq, tensor_dk, tensor_dv;
  int64_t lse_size = 0;
  Segment segments[kNumBuffers];
  size_t image_bytes = 0;

  const Segment& segment(Buffer buffer) const { return segments[static_cast<size_t>(buffer)]; }
};

Geometry make_geometry(const Case& c);

// Element of lse, dlse: (batch, heads, seqlen_q), packed (heads, total_q).
int64_t lse_index(const Case& c, const Side& q, int32_t entry, int32_t head, int32_t row);

}  // namespace cuflash::test
