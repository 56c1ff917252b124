// SPDX-License-Identifier: MIT
#include "geometry.h"

#include <algorithm>

#include "random.h"

namespace cuflash::test {
namespace {

int32_t random_length(Random& random, int32_t seqlen) {
  const int64_t kind = random.below(100);
  if (kind < 15) return 0;
  if (kind < 35) return seqlen;
  if (kind < 45) return seqlen + random.between(1, 3);  // longer than the bound: the call cuts it
  return random.between(0, seqlen);
}

std::vector<int32_t> draw_lengths(Random& random, int32_t batch, int32_t seqlen) {
  std::vector<int32_t> lengths(static_cast<size_t>(batch));
  for (int32_t& length : lengths) length = random_length(random, seqlen);
  return lengths;
}

struct SideRequest {
  int32_t batch;
  int32_t seqlen;
  bool packed;
  bool used;
  const std::vector<int32_t>& lengths;
};

Side make_side(const SideRequest& request, Random random) {
  Side side;
  side.seqlen = request.seqlen;
  side.batches = request.batch;
  side.rows = request.seqlen;
  if (request.packed) {
    const std::vector<int32_t> lengths =
        request.lengths.empty() ? draw_lengths(random, request.batch, request.seqlen) : request.lengths;
    side.cu_seqlens.push_back(0);
    for (const int32_t length : lengths) side.cu_seqlens.push_back(side.cu_seqlens.back() + length);
    side.total = side.cu_seqlens.back() + random.between(0, 5);  // spare rows behind the last sequence
    side.batches = 1;
    side.rows = side.total;
  }
  for (int32_t entry = 0; entry < request.batch; ++entry) {
    Rows rows{entry, 0, request.seqlen};
    if (request.packed) {
      const auto e = static_cast<size_t>(entry);
      rows = {0, side.cu_seqlens[e], std::min(side.cu_seqlens[e + 1] - side.cu_seqlens[e], request.seqlen)};
    }
    if (request.used) {
      const int32_t used = random_length(random, rows.length);
      side.seqused.push_back(used);
      rows.length = std::min(used, rows.length);
    }
    side.entries.push_back(rows);
    side.first_index.push_back(side.used_rows);
    side.used_rows += rows.length;
  }
  return side;
}

struct Extents {
  int64_t batches;
  int64_t rows;
  int32_t heads;
  int32_t dim;
};

// A tensor in a buffer of its own. Returns the elements that the buffer needs.
int64_t place_alone(View* view, const Extents& e, Layout layout) {
  int64_t size = 0;
  view->heads = e.heads;
  view->dim = e.dim;
  if (layout == Layout::kBhsd) {
    view->row_stride = e.dim;
    view->head_stride = e.dim * e.rows;
    view->batch_stride = view->head_stride * e.heads;
    return view->batch_stride * e.batches;
  }
  const int64_t gap = layout == Layout::kPadded ? 8 : layout == Layout::kUnaligned ? 1 : 0;
  view->base = layout == Layout::kUnaligned ? 1 : 0;
  view->head_stride = e.dim + gap;
  view->row_stride = view->head_stride * e.heads + 2 * gap;
  view->batch_stride = view->row_stride * e.rows + 3 * gap;
  size = view->base + view->batch_stride * e.batches;
  if (layout == Layout::kBroadcast) {
    view->row_stride = e.dim;
    view->head_stride = 0;
    view->batch_stride = 0;
    size = e.dim * e.rows;
  }
  return size;
}

struct Slice {
  View* view;
  int32_t heads;
  int32_t dim;
};

// Tensors with the same rows, side by side in each row of one buffer.
int64_t place_packed(std::initializer_list<Slice> slices, Buffer buffer, int64_t batches, int64_t rows) {
  int64_t width = 0;
  for (const Slice& slice : slices) width += int64_t{slice.heads} * slice.dim;
  int64_t base = 0;
  for (const Slice& slice : slices) {
    *slice.view = {buffer, base, width * rows, width, slice.dim, slice.heads, slice.dim};
    base += int64_t{slice.heads} * slice.dim;
  }
  return width * rows * batches;
}

class Builder {
 public:
  Builder(const Case& c, Geometry* geometry) : c_(c), g_(*geometry) {}

  void place_tensors() {
    place_inputs_and_gradients(&g_.tensor_q, &g_.tensor_k, &g_.tensor_v, Buffer::kQ, Buffer::kK, Buffer::kV, c_.layout);
    const Layout unshared = c_.layout == Layout::kPacked ? Layout::kBshd : c_.layout;
    const Layout written = unshared == Layout::kBroadcast ? Layout::kBshd : unshared;
    place(&g_.tensor_o, Buffer::kO, query_extents(c_.value_dim()), written);
    g_.lse_size = int64_t{c_.heads} * g_.q.batches * g_.q.rows;
    if (c_.lse || c_.op == Op::kBackward) reserve(Buffer::kLse, g_.lse_size, 4);
    if (c_.op == Op::kForward) return;
    place(&g_.tensor_dout, Buffer::kDout, query_extents(c_.value_dim()), written);
    if (c_.dlse) reserve(Buffer::kDlse, g_.lse_size, 4);
    const Layout gradients = c_.layout == Layout::kBroadcast ? Layout::kBshd : c_.layout;
    place_inputs_and_gradients(
        &g_.tensor_dq, &g_.tensor_dk, &g_.tensor_dv, Buffer::kDq, Buffer::kDk, Buffer::kDv, gradients
    );
  }

  void place_vectors() {
    reserve(Buffer::kCuSeqlensQ, static_cast<int64_t>(g_.q.cu_seqlens.size()), 4);
    reserve(Buffer::kCuSeqlensK, static_cast<int64_t>(g_.k.cu_seqlens.size()), 4);
    reserve(Buffer::kUsedQ, static_cast<int64_t>(g_.q.seqused.size()), 4);
    reserve(Buffer::kUsedK, static_cast<int64_t>(g_.k.seqused.size()), 4);
    if (c_.alibi == Alibi::kPerHead) reserve(Buffer::kAlibi, c_.heads, 4);
    if (c_.alibi == Alibi::kPerEntry) reserve(Buffer::kAlibi, int64_t{c_.heads} * c_.batch, 4);
  }

 private:
  Extents query_extents(int32_t dim) const { return {g_.q.batches, g_.q.rows, c_.heads, dim}; }
  Extents key_extents(int32_t dim) const { return {g_.k.batches, g_.k.rows, c_.heads_k, dim}; }

  void reserve(Buffer buffer, int64_t elements, size_t element_bytes) {
    if (elements == 0) return;
    const size_t bytes = static_cast<size_t>(elements) * element_bytes;
    g_.segments[static_cast<size_t>(buffer)] = {g_.image_bytes, bytes};
    const size_t end = g_.image_bytes + bytes + kRedZoneBytes;
    g_.image_bytes = (end + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  }

  void place(View* view, Buffer buffer, const Extents& extents, Layout layout) {
    view->buffer = buffer;
    reserve(buffer, place_alone(view, extents, layout), size_of(c_.dtype));
  }

  void place_inputs_and_gradients(View* q, View* k, View* v, Buffer bq, Buffer bk, Buffer bv, Layout layout) {
    const int32_t d = c_.head_dim;
    const int32_t dv = c_.value_dim();
    if (layout != Layout::kPacked) {
      place(q, bq, query_extents(d), layout == Layout::kBroadcast ? Layout::kBshd : layout);
      place(k, bk, key_extents(d), layout);
      place(v, bv, key_extents(dv), layout);
    } else if (g_.q.rows == g_.k.rows && g_.q.batches == g_.k.batches) {
      const int64_t size =
          place_packed({{q, c_.heads, d}, {k, c_.heads_k, d}, {v, c_.heads_k, dv}}, bq, g_.q.batches, g_.q.rows);
      reserve(bq, size, size_of(c_.dtype));
    } else {
      place(q, bq, query_extents(d), Layout::kBshd);
      reserve(
          bk, place_packed({{k, c_.heads_k, d}, {v, c_.heads_k, dv}}, bk, g_.k.batches, g_.k.rows), size_of(c_.dtype)
      );
    }
  }

  const Case& c_;
  Geometry& g_;
};

}  // namespace

Geometry make_geometry(const Case& c) {
  Geometry geometry;
  geometry.q = make_side({c.batch, c.seqlen_q, c.packed_q, c.used_q, c.lengths_q}, Random(c.geometry_seed, 1));
  // With equal bounds and nothing else asked for, self-attention: the keys of an entry are as many as its queries.
  const bool self_attention = c.seqlen_q == c.seqlen_k && c.layout == Layout::kPacked;
  const uint64_t stream = self_attention ? 1 : 2;
  geometry.k = make_side({c.batch, c.seqlen_k, c.packed_k, c.used_k, c.lengths_k}, Random(c.geometry_seed, stream));
  geometry.image_bytes = kRedZoneBytes;
  Builder builder(c, &geometry);
  builder.place_tensors();
  builder.place_vectors();
  return geometry;
}

int64_t lse_index(const Case& c, const Side& q, int32_t entry, int32_t head, int32_t row) {
  const Rows& rows = q.entries[static_cast<size_t>(entry)];
  if (c.packed_q) return head * q.rows + rows.first + row;
  return (int64_t{entry} * c.heads + head) * q.rows + row;
}

}  // namespace cuflash::test
