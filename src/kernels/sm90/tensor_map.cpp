// SPDX-License-Identifier: MIT
#include "kernels/sm90/tensor_map.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "kernels/sm90/swizzle.h"
#include "runtime.h"

namespace cuflash::sm90 {
namespace {

constexpr int64_t kElementBytes = 2;

// A tensor as tensor copies see it. Distances are in bytes; where there is only one element along a dimension, the distance
// may be anything: 16.
struct Layout {
  const char* name;
  const void* data;
  int32_t head_dim;
  int64_t rows;  // of an entry
  int64_t heads;
  int64_t entries;
  int64_t row_bytes;
  int64_t head_bytes;
  int64_t entry_bytes;

  bool empty() const { return rows == 0 || heads == 0 || entries == 0; }
};

// One side, queries or keys, of a problem.
struct Side {
  int64_t rows;
  int64_t heads;
  int64_t entries;

  static Side queries(const Attention& a) {
    if (a.cu_seqlens_q != nullptr) return {a.total_q, a.num_heads, 1};
    return {a.seqlen_q, a.num_heads, a.batch};
  }
  static Side keys(const Attention& a) {
    if (a.cu_seqlens_k != nullptr) return {a.total_k, a.num_heads_k, 1};
    return {a.seqlen_k, a.num_heads_k, a.batch};
  }
};

template <class TensorT>
Layout layout_of(const char* name, const TensorT& tensor, const Side& side, int32_t head_dim) {
  Layout layout = {name, tensor.data, head_dim, side.rows, side.heads, side.entries, 16, 16, 16};
  if (layout.empty()) return layout;
  if (side.rows > 1) layout.row_bytes = tensor.row_stride * kElementBytes;
  if (side.heads > 1) layout.head_bytes = tensor.head_stride * kElementBytes;
  if (side.entries > 1) layout.entry_bytes = tensor.batch_stride * kElementBytes;
  return layout;
}

using Layouts = std::array<Layout, 4>;

template <class Args, class TensorT>
Layouts layouts_of(const Args& args, const char* name, const TensorT& of_queries) {
  const Attention& a = args.attention;
  const Side queries = Side::queries(a);
  const Side keys = Side::keys(a);
  return {
      layout_of("q", args.q, queries, a.head_dim),
      layout_of("k", args.k, keys, a.head_dim),
      layout_of("v", args.v, keys, a.head_dim_v),
      layout_of(name, of_queries, queries, a.head_dim_v)};
}

// In the order of FwdMaps and BwdMaps.
Layouts layouts_of(const FwdArgs& args) { return layouts_of(args, "o", args.o); }
Layouts layouts_of(const BwdArgs& args) { return layouts_of(args, "dout", args.dout); }

// `stand_in`: where a tensor has no elements; a map needs an address.
cudaError_t make_map(const Layout& layout, int rows, cuflashDataType_t dtype, const void* stand_in, CUtensorMap* map) {
  const auto at_least_one = [](int64_t extent) { return static_cast<cuuint64_t>(std::max<int64_t>(extent, 1)); };
  const runtime::TensorBoxes boxes = {
      .type = dtype == CUFLASH_R_16F ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      .data = layout.empty() ? stand_in : layout.data,
      .extents =
          {static_cast<cuuint64_t>(layout.head_dim),
           at_least_one(layout.rows),
           at_least_one(layout.heads),
           at_least_one(layout.entries)},
      .strides =
          {static_cast<cuuint64_t>(layout.row_bytes),
           static_cast<cuuint64_t>(layout.head_bytes),
           static_cast<cuuint64_t>(layout.entry_bytes)},
      .box = {kPanel, static_cast<cuuint32_t>(rows), 1, 1}};
  return runtime::encode_tensor_map(map, boxes);
}

struct MapOf {
  CUtensorMap* map;
  int rows;  // of its boxes
};

cudaError_t make_all(const Layouts& layouts, cuflashDataType_t dtype, const std::array<MapOf, 4>& maps) {
  const Layout& q = layouts[0];
  const Layout& k = layouts[1];
  const void* stand_in = q.empty() ? k.data : q.data;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const cudaError_t error = make_map(layouts[i], maps[i].rows, dtype, stand_in, maps[i].map);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

constexpr int64_t kMaxStrideBytes = int64_t{1} << 40;

Refusal refuse(const Layout& layout) {
  if (layout.rows > INT32_MAX) return cannot(layout.name, layout.rows, "has more rows than tensor copies count");
  if (layout.empty()) return Refusal();
  for (const int64_t stride : {layout.row_bytes, layout.head_bytes, layout.entry_bytes}) {
    if (stride == 0) return cannot(layout.name, stride, "has a stride of 0: tensor copies do not repeat rows");
    if (stride >= kMaxStrideBytes)
      return cannot(layout.name, stride, "is the bytes of a stride, above what tensor copies take");
  }
  return Refusal();
}

Refusal first_refusal(const Layouts& layouts) {
  for (const Layout& layout : layouts) {
    if (const Refusal refusal = refuse(layout); refusal.verdict != Verdict::kAccept) return refusal;
  }
  return Refusal();
}

}  // namespace

cudaError_t make_maps(const FwdArgs& args, cuflashDataType_t dtype, const FwdBoxes& boxes, FwdMaps* maps) {
  return make_all(
      layouts_of(args),
      dtype,
      {{{&maps->q, boxes.q_rows}, {&maps->k, boxes.kv_rows}, {&maps->v, boxes.kv_rows}, {&maps->o, boxes.o_rows}}}
  );
}

cudaError_t make_maps(const BwdArgs& args, cuflashDataType_t dtype, const BwdBoxes& boxes, BwdMaps* maps) {
  return make_all(
      layouts_of(args),
      dtype,
      {{{&maps->q, boxes.q_rows}, {&maps->k, boxes.kv_rows}, {&maps->v, boxes.kv_rows}, {&maps->dout, boxes.q_rows}}}
  );
}

Refusal refuse_maps(const FwdArgs& args) { return first_refusal(layouts_of(args)); }
Refusal refuse_maps(const BwdArgs& args) { return first_refusal(layouts_of(args)); }

}  // namespace cuflash::sm90
