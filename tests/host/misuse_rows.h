// SPDX-License-Identifier: MIT
// The rows of the misuse matrix: every field of the params with every kind of bad value.
#pragma once

#include "misuse_row.h"
#include "misuse_tensor_rows.h"

namespace cuflash::test {

template <class Params>
void add_struct_size_rows(Rows<Params>& rows) {
  constexpr size_t kSize = sizeof(Params);
  for (const size_t size :
       {size_t{0},
        size_t{1},
        size_t{8},
        size_t{16},
        kSize / 2,
        kSize - 8,
        kSize - 4,
        kSize - 1,
        size_t{4097},
        size_t{1} << 32,
        SIZE_MAX}) {
    add(rows,
        "struct_size = " + std::to_string(size),
        {"params.struct_size (" + std::to_string(size) + ")"},
        [=](Record<Params>& r) { r.params.struct_size = size; });
  }
  for (const size_t byte : {0, 1, 31, 62, 63}) {
    rows.push_back({
        "unknown byte " + std::to_string(byte),
        CUFLASH_STATUS_NOT_SUPPORTED,
        {"params.struct_size", "byte " + std::to_string(kSize + byte)},
        [=](Record<Params>& r) {
          r.params.struct_size = sizeof(r);
          r.tail[byte] = 1;
        },
    });
  }
}

template <class Params>
void add_shape_rows(Rows<Params>& rows) {
  const std::vector<int32_t> negative = {-1, -2, INT32_MIN};
  add_values(rows, "dtype", &Params::dtype, {-1, 1, 3, 4, 13, 15, INT32_MAX, INT32_MIN});
  add_values(rows, "device", &Params::device, {-1, 2, 3, INT32_MAX, INT32_MIN});
  add_values(rows, "batch", &Params::batch, negative);
  add_values(rows, "num_heads", &Params::num_heads, {-1, -2, INT32_MIN, 1, 3, 5, INT32_MAX});
  add_values(rows, "num_heads_k", &Params::num_heads_k, negative);
  add_values(rows, "seqlen_q", &Params::seqlen_q, negative);
  add_values(rows, "seqlen_k", &Params::seqlen_k, negative);
  add_values(rows, "head_dim", &Params::head_dim, {0, -1, 257, 512, INT32_MAX, INT32_MIN});
  add_values(rows, "head_dim_v", &Params::head_dim_v, {-1, 257, 512, INT32_MAX, INT32_MIN});
  for (const int32_t heads_k : {0, 3, 5, 8, INT32_MAX}) {
    add(rows,
        "num_heads_k = " + std::to_string(heads_k),
        {"num_heads (4)", "num_heads_k (" + std::to_string(heads_k) + ")"},
        [=](Record<Params>& r) { r.params.num_heads_k = heads_k; });
  }
  add(rows,
      "rows overflow",
      {"batch (2147483647) x num_heads (2147483646) x seqlen_q (2147483647)"},
      [](Record<Params>& r) {
        r.params.batch = r.params.seqlen_q = INT32_MAX;
        r.params.num_heads = INT32_MAX - 1;
      });
}

template <class Params>
void add_score_rows(Rows<Params>& rows) {
  add_values(rows, "mask", &Params::mask, {-1, 3, INT32_MAX, INT32_MIN});
  add_values(rows, "alignment", &Params::alignment, {-1, 2, INT32_MAX, INT32_MIN});
  add_values(rows, "window_left", &Params::window_left, {-1, 1, 128, INT32_MAX, INT32_MIN});
  add_values(rows, "window_right", &Params::window_right, {-1, 1, 128, INT32_MAX, INT32_MIN});
  for (const int32_t window : {-2, -100, INT32_MIN}) {
    add(rows, "mask WINDOW, window_left = " + std::to_string(window), {"window_left ("}, [=](Record<Params>& r) {
      r.params.mask = CUFLASH_MASK_WINDOW;
      r.params.window_left = window;
    });
    add(rows, "mask WINDOW, window_right = " + std::to_string(window), {"window_right ("}, [=](Record<Params>& r) {
      r.params.mask = CUFLASH_MASK_WINDOW;
      r.params.window_right = window;
    });
  }
  for (const int32_t window : {-1, 7}) {
    add(rows, "mask CAUSAL, window_left = " + std::to_string(window), {"window_left ("}, [=](Record<Params>& r) {
      r.params.mask = CUFLASH_MASK_CAUSAL;
      r.params.window_left = window;
    });
    add(rows, "mask CAUSAL, window_right = " + std::to_string(window), {"window_right ("}, [=](Record<Params>& r) {
      r.params.mask = CUFLASH_MASK_CAUSAL;
      r.params.window_right = window;
    });
  }
  add_values(rows, "softmax_scale", &Params::softmax_scale, {kNan, -kNan, kInf, -kInf});
  add_values(rows, "softcap", &Params::softcap, {kNan, kInf, -kInf, -1.0f, -std::numeric_limits<float>::denorm_min()});
  add_values(rows, "alibi_batch_stride", &Params::alibi_batch_stride, {1, 4, -1, INT64_MAX, INT64_MIN});
  static const float kSlopes[16] = {};
  for (const int64_t stride : {int64_t{1}, int64_t{3}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    add(rows,
        "alibi_slopes, alibi_batch_stride = " + std::to_string(stride),
        {"alibi_batch_stride ("},
        [=](Record<Params>& r) {
          r.params.alibi_slopes = kSlopes;
          r.params.alibi_batch_stride = stride;
        });
  }
  add(rows, "alibi_batch_stride overflow, batch = 3", {"alibi_batch_stride ("}, [](Record<Params>& r) {
    r.params.batch = 3;
    r.params.alibi_slopes = kSlopes;
    r.params.alibi_batch_stride = INT64_MAX;  // times 2 is -2
  });
  add_misaligned(rows, "alibi_slopes", &Params::alibi_slopes);
}

template <class Params>
void add_length_rows(Rows<Params>& rows) {
  static const int32_t kLengths[3] = {0, 1, 2};
  add_values(rows, "total_q", &Params::total_q, {1, 10, -1, INT64_MAX, INT64_MIN});
  add_values(rows, "total_k", &Params::total_k, {1, 14, -1, INT64_MAX, INT64_MIN});
  for (const int64_t total : {int64_t{-1}, INT64_MIN, int64_t{1} << 31, INT64_MAX}) {
    add(rows, "cu_seqlens_q, total_q = " + std::to_string(total), {"total_q ("}, [=](Record<Params>& r) {
      r.params.cu_seqlens_q = kLengths;
      r.params.total_q = total;
    });
    add(rows, "cu_seqlens_k, total_k = " + std::to_string(total), {"total_k ("}, [=](Record<Params>& r) {
      r.params.cu_seqlens_k = kLengths;
      r.params.total_k = total;
    });
  }
  add_misaligned(rows, "cu_seqlens_q", &Params::cu_seqlens_q);
  add_misaligned(rows, "cu_seqlens_k", &Params::cu_seqlens_k);
  add_misaligned(rows, "seqused_q", &Params::seqused_q);
  add_misaligned(rows, "seqused_k", &Params::seqused_k);
}

template <class Params, class T>
void add_reserved(Rows<Params>& rows, const std::string& field, T Params::*member, const std::vector<T>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = values[i];
    rows.push_back({
        "reserved " + field + " #" + std::to_string(i),
        CUFLASH_STATUS_NOT_SUPPORTED,
        {field + " is not supported yet: it must be 0"},
        [=](Record<Params>& r) { r.params.*member = value; },
    });
  }
}

template <class Params>
void add_reserved_rows(Rows<Params>& rows) {
  static float value = 0.0f;
  static const int32_t page = 0;
  const std::vector<int64_t> strides = {1, -1, INT64_MAX};
  const std::vector<uint64_t> unsigned_values = {1, UINT64_MAX};
  const std::vector<const float*> pointers = {&value};
  add_reserved<Params, const void*>(rows, "bias", &Params::bias, {&value});
  add_reserved(rows, "bias_batch_stride", &Params::bias_batch_stride, strides);
  add_reserved(rows, "bias_head_stride", &Params::bias_head_stride, strides);
  add_reserved(rows, "bias_row_stride", &Params::bias_row_stride, strides);
  add_reserved(rows, "sinks", &Params::sinks, pointers);
  add_reserved(rows, "dropout_seed", &Params::dropout_seed, unsigned_values);
  add_reserved(rows, "dropout_offset", &Params::dropout_offset, unsigned_values);
  add_reserved(rows, "dropout_p", &Params::dropout_p, {0.5f, 1.0f, -1.0f, kNan, kInf});
  add_reserved(rows, "page_size", &Params::page_size, {1, 16, -1, INT32_MIN});
  add_reserved<Params, const int32_t*>(rows, "page_table", &Params::page_table, {&page});
  add_reserved(rows, "page_table_batch_stride", &Params::page_table_batch_stride, strides);
  add_reserved(rows, "q_descale", &Params::q_descale, pointers);
  add_reserved(rows, "k_descale", &Params::k_descale, pointers);
  add_reserved(rows, "v_descale", &Params::v_descale, pointers);
  if constexpr (kIsBackward<Params>) {
    add_reserved<Params, void*>(rows, "dbias", &Params::dbias, {&value});
    add_reserved<Params, float*>(rows, "dsinks", &Params::dsinks, {&value});
    add_values(rows, "deterministic", &Params::deterministic, {2, -1, INT32_MAX, INT32_MIN});
  } else {
    add_values(rows, "reserved0", &Params::reserved0, {1, -1, INT32_MAX, INT32_MIN});
  }
}

template <class Params>
void add_kernel_rows(Rows<Params>& rows) {
  static const std::string long_name(5000, 'x');
  for (const char* name : {"", "nonsense", "Scalar", "scalar ", " host", "%s%n", long_name.c_str()}) {
    add(rows,
        std::string("kernel \"") + std::string(name).substr(0, 20) + "\"",
        {"kernel (\"", "must be one of: "},
        [=](Record<Params>& r) { r.params.kernel = name; });
  }
}

template <class Params>
Rows<Params> misuse_rows() {
  Rows<Params> rows;
  add_struct_size_rows(rows);
  add_shape_rows(rows);
  add_score_rows(rows);
  add_length_rows(rows);
  add_reserved_rows(rows);
  add_tensors(rows);
  add_alias_rows(rows);
  add_small_alias_rows(rows);
  add_kernel_rows(rows);
  return rows;
}

}  // namespace cuflash::test
