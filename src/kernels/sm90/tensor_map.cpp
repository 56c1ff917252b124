// SPDX-License-Identifier: MIT
#include "kernels/sm90/tensor_map.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/sm90/swizzle.h"
#include "runtime.h"

namespace cuflash::sm90 {
namespace {

constexpr int64_t kElementBytes = 2;

struct Extents {
  int64_t entries;
  int64_t rows;  // of an entry
  int64_t heads;
  int32_t head_dim;

  bool empty() const { return entries == 0 || rows == 0 || heads == 0; }
};

Extents query_extents(const Attention& a, int32_t head_dim) {
  if (a.cu_seqlens_q != nullptr) return {1, a.total_q, a.num_heads, head_dim};
  return {a.batch, a.seqlen_q, a.num_heads, head_dim};
}

Extents key_extents(const Attention& a, int32_t head_dim) {
  if (a.cu_seqlens_k != nullptr) return {1, a.total_k, a.num_heads_k, head_dim};
  return {a.batch, a.seqlen_k, a.num_heads_k, head_dim};
}

// Distances in bytes between rows, heads and entries. Where there is only one, the distance may be anything: 16.
struct Strides {
  int64_t row;
  int64_t head;
  int64_t entry;
};

template <class TensorT>
Strides strides_of(const TensorT& tensor, const Extents& extents) {
  const auto bytes = [&](int64_t extent, int64_t stride) {
    return extent > 1 && !extents.empty() ? stride * kElementBytes : 16;
  };
  return {
      bytes(extents.rows, tensor.row_stride),
      bytes(extents.heads, tensor.head_stride),
      bytes(extents.entries, tensor.batch_stride)};
}

template <class TensorT>
cudaError_t make_map(
    const TensorT& tensor,
    const Extents& extents,
    int rows,
    cuflashDataType_t dtype,
    const void* stand_in,
    CUtensorMap* map
) {
  const Strides strides = strides_of(tensor, extents);
  const auto at_least_one = [](int64_t extent) { return static_cast<cuuint64_t>(std::max<int64_t>(extent, 1)); };
  const runtime::TensorBoxes boxes = {
      .type = dtype == CUFLASH_R_16F ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      .data = extents.empty() ? stand_in : tensor.data,
      .extents =
          {static_cast<cuuint64_t>(extents.head_dim),
           at_least_one(extents.rows),
           at_least_one(extents.heads),
           at_least_one(extents.entries)},
      .strides =
          {static_cast<cuuint64_t>(strides.row),
           static_cast<cuuint64_t>(strides.head),
           static_cast<cuuint64_t>(strides.entry)},
      .box = {kPanel, static_cast<cuuint32_t>(rows), 1, 1}};
  return runtime::encode_tensor_map(map, boxes);
}

constexpr int64_t kMaxStrideBytes = int64_t{1} << 40;

template <class TensorT>
Refusal refuse_map(const char* name, const TensorT& tensor, const Extents& extents) {
  if (extents.rows > INT32_MAX) return cannot(name, extents.rows, "has more rows than tensor copies count");
  if (extents.empty()) return Refusal();
  const Strides strides = strides_of(tensor, extents);
  for (const int64_t stride : {strides.row, strides.head, strides.entry}) {
    if (stride == 0) return cannot(name, stride, "has a stride of 0: tensor copies do not repeat rows");
    if (stride >= kMaxStrideBytes)
      return cannot(name, stride, "is the bytes of a stride, above what tensor copies take");
  }
  return Refusal();
}

Refusal first_refusal(std::initializer_list<Refusal> refusals) {
  for (const Refusal& refusal : refusals) {
    if (refusal.verdict != Verdict::kAccept) return refusal;
  }
  return Refusal();
}

}  // namespace

cudaError_t make_maps(const FwdArgs& args, cuflashDataType_t dtype, const FwdBoxes& boxes, FwdMaps* maps) {
  const Attention& a = args.attention;
  const void* stand_in = args.q.data;  // where there are no keys: a map needs an address
  cudaError_t error = make_map(args.q, query_extents(a, a.head_dim), boxes.q_rows, dtype, stand_in, &maps->q);
  if (error != cudaSuccess) return error;
  error = make_map(args.k, key_extents(a, a.head_dim), boxes.kv_rows, dtype, stand_in, &maps->k);
  if (error != cudaSuccess) return error;
  error = make_map(args.v, key_extents(a, a.head_dim_v), boxes.kv_rows, dtype, stand_in, &maps->v);
  if (error != cudaSuccess) return error;
  return make_map(args.o, query_extents(a, a.head_dim_v), boxes.o_rows, dtype, stand_in, &maps->o);
}

cudaError_t make_maps(const BwdArgs& args, cuflashDataType_t dtype, const BwdBoxes& boxes, BwdMaps* maps) {
  const Attention& a = args.attention;
  const void* stand_in = args.q.data;
  cudaError_t error = make_map(args.q, query_extents(a, a.head_dim), boxes.q_rows, dtype, stand_in, &maps->q);
  if (error != cudaSuccess) return error;
  error = make_map(args.k, key_extents(a, a.head_dim), boxes.kv_rows, dtype, stand_in, &maps->k);
  if (error != cudaSuccess) return error;
  error = make_map(args.v, key_extents(a, a.head_dim_v), boxes.kv_rows, dtype, stand_in, &maps->v);
  if (error != cudaSuccess) return error;
  return make_map(args.dout, query_extents(a, a.head_dim_v), boxes.q_rows, dtype, stand_in, &maps->dout);
}

Refusal refuse_maps(const FwdArgs& args) {
  const Attention& a = args.attention;
  return first_refusal({
      refuse_map("q", args.q, query_extents(a, a.head_dim)),
      refuse_map("k", args.k, key_extents(a, a.head_dim)),
      refuse_map("v", args.v, key_extents(a, a.head_dim_v)),
      refuse_map("o", args.o, query_extents(a, a.head_dim_v)),
  });
}

Refusal refuse_maps(const BwdArgs& args) {
  const Attention& a = args.attention;
  return first_refusal({
      refuse_map("q", args.q, query_extents(a, a.head_dim)),
      refuse_map("k", args.k, key_extents(a, a.head_dim)),
      refuse_map("v", args.v, key_extents(a, a.head_dim_v)),
      refuse_map("dout", args.dout, query_extents(a, a.head_dim_v)),
  });
}

}  // namespace cuflash::sm90
