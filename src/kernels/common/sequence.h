// SPDX-License-Identifier: MIT
// Where the rows of a batch entry lie, how many there are, and where its lse is: dense, packed and shortened alike.
#pragma once

#include "kernels/common/host_device.h"
#include "kernels/kernel_args.h"

namespace cuflash {

// One side (queries or keys) of one batch entry.
struct Rows {
  int64_t batch;   // index for batch_stride: the entry if dense, 0 if packed
  int64_t first;   // row in the tensor of the entry's row 0
  int32_t length;  // rows in use
};

struct Sequence {
  Rows q;
  Rows k;
  int64_t offset;  // off of the mask: query row i is on the diagonal of key row i + offset
};

CUFLASH_HD int64_t clamp_to(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : (value > high ? high : value);
}

// Values read from the device are clamped, so that whatever they hold, rows stay inside of the tensor.
CUFLASH_HD Rows
entry_rows(int32_t entry, int32_t seqlen, int64_t total, const int32_t* cu_seqlens, const int32_t* seqused) {
  Rows rows{entry, 0, seqlen};
  if (cu_seqlens != nullptr) {
    const int64_t begin = clamp_to(cu_seqlens[entry], 0, total);
    const int64_t end = clamp_to(cu_seqlens[entry + 1], begin, total);
    rows = {0, begin, static_cast<int32_t>(clamp_to(end - begin, 0, seqlen))};
  }
  if (seqused != nullptr) rows.length = static_cast<int32_t>(clamp_to(seqused[entry], 0, rows.length));
  return rows;
}

CUFLASH_HD Sequence sequence_of(const Attention& a, int32_t entry) {
  const Rows q = entry_rows(entry, a.seqlen_q, a.total_q, a.cu_seqlens_q, a.seqused_q);
  const Rows k = entry_rows(entry, a.seqlen_k, a.total_k, a.cu_seqlens_k, a.seqused_k);
  return {q, k, a.bottom_right ? int64_t{k.length} - q.length : 0};
}

// Element offset of a row of one head.
template <class TensorT>
CUFLASH_HD int64_t row_offset(const TensorT& tensor, const Rows& rows, int32_t row, int32_t head) {
  return rows.batch * tensor.batch_stride + (rows.first + row) * tensor.row_stride + head * tensor.head_stride;
}

template <class T, class TensorT>
CUFLASH_HD const T* row_pointer(const TensorT& tensor, const Rows& rows, int32_t row, int32_t head) {
  return static_cast<const T*>(tensor.data) + row_offset(tensor, rows, row, head);
}

template <class T>
CUFLASH_HD T* mutable_row_pointer(const Tensor& tensor, const Rows& rows, int32_t row, int32_t head) {
  return static_cast<T*>(tensor.data) + row_offset(tensor, rows, row, head);
}

// Element offset in lse, dlse and delta: (batch, num_heads, seqlen_q), packed (num_heads, total_q).
CUFLASH_HD int64_t lse_offset(const Attention& a, const Rows& q, int32_t row, int32_t head) {
  if (a.cu_seqlens_q != nullptr) return int64_t{head} * a.total_q + q.first + row;
  return (q.batch * a.num_heads + head) * int64_t{a.seqlen_q} + row;
}

// Elements of lse.
CUFLASH_HD int64_t lse_size(const Attention& a) {
  if (a.cu_seqlens_q != nullptr) return int64_t{a.num_heads} * a.total_q;
  return int64_t{a.batch} * a.num_heads * a.seqlen_q;
}

// Key head that a query head reads, and the query heads of a group.
CUFLASH_HD int32_t group_size(const Attention& a) { return a.num_heads_k == 0 ? 0 : a.num_heads / a.num_heads_k; }
CUFLASH_HD int32_t key_head(const Attention& a, int32_t head) { return head / group_size(a); }

}  // namespace cuflash
