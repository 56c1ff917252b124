// SPDX-License-Identifier: MIT
#include "validate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <type_traits>

#include "kernels/common/sequence.h"
#include "registry.h"
#include "tensor_check.h"
#include "workspace.h"

namespace cuflash {
namespace {

constexpr size_t kMaxStructSize = 4096;  // a struct_size beyond this is garbage, not a later version

// Sizes that a struct has had, one per released version that appended fields.
template <class StructT>
constexpr size_t kKnownSizes[] = {sizeof(StructT)};

Status check_extent(const char* name, int32_t value) {
  CUFLASH_REQUIRE(value >= 0, "%s (%d) must not be negative", name, value);
  return Status();
}

template <class ParamsT>
Status check_shape(const ParamsT& p) {
  CUFLASH_REQUIRE(
      dtype_bit(p.dtype) != 0,
      "dtype (%d) must be CUFLASH_R_32F (%d), CUFLASH_R_16F (%d) or CUFLASH_R_16BF (%d)",
      p.dtype,
      CUFLASH_R_32F,
      CUFLASH_R_16F,
      CUFLASH_R_16BF
  );
  CUFLASH_REQUIRE(
      p.device == CUFLASH_DEVICE_CUDA || p.device == CUFLASH_DEVICE_HOST,
      "device (%d) must be CUFLASH_DEVICE_CUDA (%d) or CUFLASH_DEVICE_HOST (%d)",
      p.device,
      CUFLASH_DEVICE_CUDA,
      CUFLASH_DEVICE_HOST
  );
  CUFLASH_TRY(check_extent("batch", p.batch));
  CUFLASH_TRY(check_extent("num_heads", p.num_heads));
  CUFLASH_TRY(check_extent("num_heads_k", p.num_heads_k));
  CUFLASH_TRY(check_extent("seqlen_q", p.seqlen_q));
  CUFLASH_TRY(check_extent("seqlen_k", p.seqlen_k));
  CUFLASH_REQUIRE(
      p.num_heads_k > 0 ? p.num_heads % p.num_heads_k == 0 : p.num_heads == 0,
      "num_heads (%d) must be a multiple of num_heads_k (%d)",
      p.num_heads,
      p.num_heads_k
  );
  CUFLASH_REQUIRE(
      p.head_dim >= 1 && p.head_dim <= kMaxHeadDim, "head_dim (%d) must be 1 to %d", p.head_dim, kMaxHeadDim
  );
  CUFLASH_REQUIRE(
      p.head_dim_v >= 0 && p.head_dim_v <= kMaxHeadDim,
      "head_dim_v (%d) must be 1 to %d, or 0 for head_dim",
      p.head_dim_v,
      kMaxHeadDim
  );
  return Status();
}

template <class ParamsT>
Status check_scores(const ParamsT& p) {
  CUFLASH_REQUIRE(
      p.mask >= CUFLASH_MASK_NONE && p.mask <= CUFLASH_MASK_WINDOW,
      "mask (%d) must be CUFLASH_MASK_NONE (%d), CUFLASH_MASK_CAUSAL (%d) or CUFLASH_MASK_WINDOW (%d)",
      p.mask,
      CUFLASH_MASK_NONE,
      CUFLASH_MASK_CAUSAL,
      CUFLASH_MASK_WINDOW
  );
  CUFLASH_REQUIRE(
      p.alignment == CUFLASH_ALIGN_BOTTOM_RIGHT || p.alignment == CUFLASH_ALIGN_TOP_LEFT,
      "alignment (%d) must be CUFLASH_ALIGN_BOTTOM_RIGHT (%d) or CUFLASH_ALIGN_TOP_LEFT (%d)",
      p.alignment,
      CUFLASH_ALIGN_BOTTOM_RIGHT,
      CUFLASH_ALIGN_TOP_LEFT
  );
  const bool window = p.mask == CUFLASH_MASK_WINDOW;
  CUFLASH_REQUIRE(
      window ? p.window_left >= -1 : p.window_left == 0,
      window ? "window_left (%d) must be at least 0, or -1 for unlimited"
             : "window_left (%d) must be 0 unless mask is CUFLASH_MASK_WINDOW",
      p.window_left
  );
  CUFLASH_REQUIRE(
      window ? p.window_right >= -1 : p.window_right == 0,
      window ? "window_right (%d) must be at least 0, or -1 for unlimited"
             : "window_right (%d) must be 0 unless mask is CUFLASH_MASK_WINDOW",
      p.window_right
  );
  CUFLASH_REQUIRE(
      std::isfinite(p.softmax_scale),
      "softmax_scale (%g) must be finite; 0 means 1 / sqrt(head_dim)",
      static_cast<double>(p.softmax_scale)
  );
  CUFLASH_REQUIRE(
      std::isfinite(p.softcap) && p.softcap >= 0.0f,
      "softcap (%g) must be positive and finite, or 0 for none",
      static_cast<double>(p.softcap)
  );
  CUFLASH_REQUIRE(
      p.alibi_batch_stride == 0 || (p.alibi_slopes != nullptr && p.alibi_batch_stride >= p.num_heads),
      p.alibi_slopes == nullptr
          ? "alibi_batch_stride (%lld) must be 0 without alibi_slopes"
          : "alibi_batch_stride (%lld) must be at least num_heads, or 0 for slopes that all entries share",
      static_cast<long long>(p.alibi_batch_stride)
  );
  return Status();
}

Status check_total(const char* total_name, int64_t total, const char* cu_name, const int32_t* cu_seqlens) {
  CUFLASH_REQUIRE(
      cu_seqlens != nullptr ? total >= 0 : total == 0,
      cu_seqlens != nullptr ? "%s (%lld) must not be negative: it is the number of packed rows that %s describes"
                            : "%s (%lld) must be 0 without %s",
      total_name,
      static_cast<long long>(total),
      cu_name
  );
  CUFLASH_REQUIRE(total <= INT32_MAX, "%s (%lld) must be at most 2^31 - 1", total_name, static_cast<long long>(total));
  return Status();
}

struct Reserved {
  const char* name;
  bool used;
};

Status check_reserved(std::initializer_list<Reserved> fields) {
  for (const Reserved& field : fields) {
    if (field.used) return fail(CUFLASH_STATUS_NOT_SUPPORTED, "%s is not supported yet: it must be 0", field.name);
  }
  return Status();
}

template <class ParamsT>
Status check_reserved_fields(const ParamsT& p) {
  return check_reserved({
      {"bias", p.bias != nullptr},
      {"bias_batch_stride", p.bias_batch_stride != 0},
      {"bias_head_stride", p.bias_head_stride != 0},
      {"bias_row_stride", p.bias_row_stride != 0},
      {"sinks", p.sinks != nullptr},
      {"dropout_p", !(p.dropout_p == 0.0f)},
      {"dropout_seed", p.dropout_seed != 0},
      {"dropout_offset", p.dropout_offset != 0},
      {"page_size", p.page_size != 0},
      {"page_table", p.page_table != nullptr},
      {"page_table_batch_stride", p.page_table_batch_stride != 0},
      {"q_descale", p.q_descale != nullptr},
      {"k_descale", p.k_descale != nullptr},
      {"v_descale", p.v_descale != nullptr},
  });
}

// A packed entry has at most all rows: a generous upper bound must not cost empty tiles.
int32_t bounded_length(int32_t seqlen, const int32_t* cu_seqlens, int64_t total) {
  return cu_seqlens == nullptr ? seqlen : static_cast<int32_t>(std::min<int64_t>(seqlen, total));
}

// The normalised form of everything but the tensors. A window that covers all keys is no window.
template <class ParamsT>
Attention normalise(const ParamsT& p) {
  const auto side = [](int32_t window) { return window < 0 ? kUnlimited : int64_t{window}; };
  Attention a{};
  a.batch = p.batch;
  a.num_heads = p.num_heads;
  a.num_heads_k = p.num_heads_k;
  a.seqlen_q = bounded_length(p.seqlen_q, p.cu_seqlens_q, p.total_q);
  a.seqlen_k = bounded_length(p.seqlen_k, p.cu_seqlens_k, p.total_k);
  a.head_dim = p.head_dim;
  a.head_dim_v = p.head_dim_v == 0 ? p.head_dim : p.head_dim_v;
  a.bottom_right = p.alignment == CUFLASH_ALIGN_BOTTOM_RIGHT;
  switch (p.mask) {
    case CUFLASH_MASK_CAUSAL:
      a.window_left = kUnlimited;
      a.window_right = 0;
      break;
    case CUFLASH_MASK_WINDOW:
      a.window_left = side(p.window_left);
      a.window_right = side(p.window_right);
      break;
    default: a.window_left = a.window_right = kUnlimited;
  }
  const int64_t longest = int64_t{a.seqlen_q} + a.seqlen_k;
  if (a.window_left >= longest) a.window_left = kUnlimited;
  if (a.window_right >= longest) a.window_right = kUnlimited;
  a.scale =
      p.softmax_scale != 0.0f ? p.softmax_scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_dim)));
  a.softcap = p.softcap;
  a.total_q = p.total_q;
  a.total_k = p.total_k;
  a.cu_seqlens_q = p.cu_seqlens_q;
  a.cu_seqlens_k = p.cu_seqlens_k;
  a.seqused_q = p.seqused_q;
  a.seqused_k = p.seqused_k;
  a.alibi_slopes = p.alibi_slopes;
  a.alibi_batch_stride = p.alibi_batch_stride;
  return a;
}

FeatureSet features_of(const Attention& a) {
  const bool masked = a.window_left != kUnlimited || a.window_right != kUnlimited;
  const bool causal = a.window_left == kUnlimited && a.window_right == 0;
  FeatureSet set = 0;
  if (causal) set |= CUFLASH_FEATURE_CAUSAL;
  if (masked && !causal) set |= CUFLASH_FEATURE_WINDOW;
  if (!a.bottom_right && (masked || a.alibi_slopes != nullptr)) set |= CUFLASH_FEATURE_TOP_LEFT;
  if (a.num_heads_k != a.num_heads) set |= CUFLASH_FEATURE_GQA;
  if (a.cu_seqlens_q != nullptr || a.cu_seqlens_k != nullptr) set |= CUFLASH_FEATURE_VARLEN;
  if (a.seqused_q != nullptr || a.seqused_k != nullptr) set |= CUFLASH_FEATURE_SEQUSED;
  if (a.softcap > 0.0f) set |= CUFLASH_FEATURE_SOFTCAP;
  if (a.alibi_slopes != nullptr) set |= CUFLASH_FEATURE_ALIBI;
  if (a.head_dim_v != a.head_dim) set |= CUFLASH_FEATURE_HEAD_DIM_V;
  if (a.scale < 0.0f) set |= CUFLASH_FEATURE_NEGATIVE_SCALE;
  return set;
}

// Everything that forward and backward share: fills the call and its attention.
template <class ParamsT>
Status validate_common(const ParamsT& p, Call* call, Attention* attention) {
  CUFLASH_TRY(check_shape(p));
  CUFLASH_TRY(check_scores(p));
  CUFLASH_TRY(check_total("total_q", p.total_q, "cu_seqlens_q", p.cu_seqlens_q));
  CUFLASH_TRY(check_total("total_k", p.total_k, "cu_seqlens_k", p.cu_seqlens_k));
  CUFLASH_TRY(check_reserved_fields(p));
  if (p.kernel != nullptr) CUFLASH_TRY(check_kernel_name("kernel", p.kernel));
  *attention = normalise(p);
  *call = {p.dtype, p.device, p.kernel, features_of(*attention), false, {}};
  return Status();
}

// Rows are counted in 64 bits, in grids, in lse and in workspaces: the count must leave room for the size of a row.
Status check_rows(const char* heads_name, int64_t batch, int64_t heads, const char* rows_name, int64_t rows) {
  int64_t count = 0;
  const bool overflow = __builtin_mul_overflow(batch * heads, rows, &count) || count >= int64_t{1} << 57;
  CUFLASH_REQUIRE(
      !overflow,
      "batch (%lld) x %s (%lld) x %s (%lld) is too large: it must be below 2^57",
      static_cast<long long>(batch),
      heads_name,
      static_cast<long long>(heads),
      rows_name,
      static_cast<long long>(rows)
  );
  return Status();
}

// With cu_seqlens, seqlen bounds the rows of an entry, so that grids are counted alike; lse has heads x total_q elements.
Status check_rows(const Attention& a) {
  CUFLASH_TRY(check_rows("num_heads", a.batch, a.num_heads, "seqlen_q", a.seqlen_q));
  CUFLASH_TRY(check_rows("num_heads_k", a.batch, a.num_heads_k, "seqlen_k", a.seqlen_k));
  return check_rows("num_heads", 1, a.num_heads, "total_q", a.total_q);
}

// Elements from the first to the last slope.
Status count_slopes(const Attention& a, int64_t* count) {
  const int64_t last_entry = a.batch == 0 ? 0 : a.batch - 1;
  const bool overflow = __builtin_mul_overflow(last_entry, a.alibi_batch_stride, count) ||
                        __builtin_add_overflow(*count, int64_t{a.num_heads}, count);
  CUFLASH_REQUIRE(
      !overflow,
      "alibi_batch_stride (%lld) is too large: with batch %d the slopes pass the end of the address space",
      static_cast<long long>(a.alibi_batch_stride),
      a.batch
  );
  return Status();
}

Status check_small_inputs(const Attention& a, TensorCheck* check) {
  int64_t slopes = 0;
  CUFLASH_TRY(count_slopes(a, &slopes));
  CUFLASH_TRY(check->small_input("alibi_slopes", a.alibi_slopes, slopes));
  CUFLASH_TRY(check->small_input("cu_seqlens_q", a.cu_seqlens_q, int64_t{a.batch} + 1));
  CUFLASH_TRY(check->small_input("cu_seqlens_k", a.cu_seqlens_k, int64_t{a.batch} + 1));
  CUFLASH_TRY(check->small_input("seqused_q", a.seqused_q, a.batch));
  return check->small_input("seqused_k", a.seqused_k, a.batch);
}

// Queries that are packed have one run of total_q rows; batch_stride then means nothing.
Extents extents_q(const Attention& a, int32_t heads, int32_t dim) {
  return a.cu_seqlens_q != nullptr ? Extents{1, a.total_q, heads, dim} : Extents{a.batch, a.seqlen_q, heads, dim};
}

Extents extents_k(const Attention& a, int32_t heads, int32_t dim) {
  return a.cu_seqlens_k != nullptr ? Extents{1, a.total_k, heads, dim} : Extents{a.batch, a.seqlen_k, heads, dim};
}

template <class PublicTensor>
auto normalised(const PublicTensor& t, const int32_t* cu_seqlens) {
  using Internal = std::conditional_t<std::is_same_v<PublicTensor, cuflashTensor_t>, Tensor, ConstTensor>;
  return Internal{t.data, cu_seqlens != nullptr ? 0 : t.batch_stride, t.row_stride, t.head_stride};
}

}  // namespace

template <class StructT>
Status check_struct_size(const char* what, size_t size) {
  const auto& known = kKnownSizes<StructT>;
  const bool accepted = std::find(std::begin(known), std::end(known), size) != std::end(known) ||
                        (size > sizeof(StructT) && size <= kMaxStructSize);
  CUFLASH_REQUIRE(
      accepted,
      "%s.struct_size (%zu) must be sizeof the %s struct: %zu in this version of the library",
      what,
      size,
      what,
      sizeof(StructT)
  );
  return Status();
}

template <class ParamsT>
Status import_params(const ParamsT* caller, ParamsT* params) {
  CUFLASH_REQUIRE(caller != nullptr, "params must not be NULL");
  size_t size = 0;
  std::memcpy(&size, caller, sizeof(size));
  CUFLASH_TRY(check_struct_size<ParamsT>("params", size));
  *params = ParamsT{};
  std::memcpy(params, caller, std::min(size, sizeof(ParamsT)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(caller);
  for (size_t i = sizeof(ParamsT); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return fail(
        CUFLASH_STATUS_NOT_SUPPORTED,
        "params.struct_size (%zu) is that of a later version, and byte %zu, which this version does not know, is not 0",
        size,
        i
    );
  }
  return Status();
}

template <class ParamsT>
Status init_params(ParamsT* params, size_t struct_size) {
  CUFLASH_REQUIRE(params != nullptr, "params must not be NULL");
  CUFLASH_TRY(check_struct_size<ParamsT>("params", struct_size));
  std::memset(static_cast<void*>(params), 0, struct_size);
  std::memcpy(static_cast<void*>(params), &struct_size, sizeof(struct_size));
  return Status();
}

template Status check_struct_size<cuflashKernelInfo_t>(const char*, size_t);
template Status import_params(const cuflashForwardParams_t*, cuflashForwardParams_t*);
template Status import_params(const cuflashBackwardParams_t*, cuflashBackwardParams_t*);
template Status init_params(cuflashForwardParams_t*, size_t);
template Status init_params(cuflashBackwardParams_t*, size_t);

Status validate(const cuflashForwardParams_t& p, Pointers pointers, ForwardProblem* problem) {
  FwdArgs& args = problem->args;
  const Attention& a = args.attention;
  CUFLASH_TRY(validate_common(p, problem, &args.attention));
  CUFLASH_REQUIRE(p.reserved0 == 0, "reserved0 (%d) must be 0", p.reserved0);
  CUFLASH_TRY(check_rows(a));
  args.q = normalised(p.q, p.cu_seqlens_q);
  args.k = normalised(p.k, p.cu_seqlens_k);
  args.v = normalised(p.v, p.cu_seqlens_k);
  args.o = normalised(p.o, p.cu_seqlens_q);
  args.lse = p.softmax_lse;

  TensorCheck check(p.dtype, pointers == Pointers::kRequired);
  CUFLASH_TRY(check.input("q", args.q, extents_q(a, a.num_heads, a.head_dim)));
  CUFLASH_TRY(check.input("k", args.k, extents_k(a, a.num_heads_k, a.head_dim)));
  CUFLASH_TRY(check.input("v", args.v, extents_k(a, a.num_heads_k, a.head_dim_v)));
  CUFLASH_TRY(check.output("o", args.o, extents_q(a, a.num_heads, a.head_dim_v)));
  CUFLASH_TRY(check.optional_row_values("softmax_lse", args.lse, lse_size(a), /*is_output=*/true));
  CUFLASH_TRY(check_small_inputs(a, &check));
  CUFLASH_TRY(check.no_overlap());
  problem->memory = check.memory();
  if (check.unaligned()) problem->features |= CUFLASH_FEATURE_UNALIGNED;
  problem->empty = extents_q(a, a.num_heads, a.head_dim_v).empty() || a.batch == 0 || a.seqlen_q == 0;
  return Status();
}

Status validate(const cuflashBackwardParams_t& p, Pointers pointers, BackwardProblem* problem) {
  BwdArgs& args = problem->args;
  const Attention& a = args.attention;
  CUFLASH_TRY(validate_common(p, problem, &args.attention));
  CUFLASH_REQUIRE(p.deterministic == 0 || p.deterministic == 1, "deterministic (%d) must be 0 or 1", p.deterministic);
  CUFLASH_TRY(check_reserved({{"dbias", p.dbias != nullptr}, {"dsinks", p.dsinks != nullptr}}));
  CUFLASH_TRY(check_rows(a));
  args.q = normalised(p.q, p.cu_seqlens_q);
  args.k = normalised(p.k, p.cu_seqlens_k);
  args.v = normalised(p.v, p.cu_seqlens_k);
  args.o = normalised(p.o, p.cu_seqlens_q);
  args.dout = normalised(p.dout, p.cu_seqlens_q);
  args.lse = p.softmax_lse;
  args.dlse = p.dlse;
  args.dq = normalised(p.dq, p.cu_seqlens_q);
  args.dk = normalised(p.dk, p.cu_seqlens_k);
  args.dv = normalised(p.dv, p.cu_seqlens_k);

  TensorCheck check(p.dtype, pointers == Pointers::kRequired);
  CUFLASH_TRY(check.input("q", args.q, extents_q(a, a.num_heads, a.head_dim)));
  CUFLASH_TRY(check.input("k", args.k, extents_k(a, a.num_heads_k, a.head_dim)));
  CUFLASH_TRY(check.input("v", args.v, extents_k(a, a.num_heads_k, a.head_dim_v)));
  CUFLASH_TRY(check.input("o", args.o, extents_q(a, a.num_heads, a.head_dim_v)));
  CUFLASH_TRY(check.input("dout", args.dout, extents_q(a, a.num_heads, a.head_dim_v)));
  CUFLASH_TRY(check.row_values("softmax_lse", args.lse, lse_size(a)));
  CUFLASH_TRY(check.optional_row_values("dlse", args.dlse, lse_size(a), /*is_output=*/false));
  CUFLASH_TRY(check.output("dq", args.dq, extents_q(a, a.num_heads, a.head_dim)));
  CUFLASH_TRY(check.output("dk", args.dk, extents_k(a, a.num_heads_k, a.head_dim)));
  CUFLASH_TRY(check.output("dv", args.dv, extents_k(a, a.num_heads_k, a.head_dim_v)));
  CUFLASH_TRY(check_small_inputs(a, &check));
  CUFLASH_TRY(check.no_overlap());
  problem->memory = check.memory();
  if (check.unaligned()) problem->features |= CUFLASH_FEATURE_UNALIGNED;
  if (args.dlse != nullptr) problem->features |= CUFLASH_FEATURE_DLSE;
  problem->args.deterministic = p.deterministic == 1;
  if (p.deterministic == 1) problem->features |= CUFLASH_FEATURE_DETERMINISTIC;
  const bool no_queries = extents_q(a, a.num_heads, 1).empty() || a.seqlen_q == 0;
  const bool no_keys = extents_k(a, a.num_heads_k, 1).empty() || a.seqlen_k == 0;
  problem->empty = a.batch == 0 || (no_queries && no_keys);
  return Status();
}

Status validate_workspace(const MemoryRanges& memory, const void* workspace, size_t size, size_t needed) {
  if (size < needed) {
    return fail(CUFLASH_STATUS_WORKSPACE_TOO_SMALL, "workspace_size (%zu) must be at least %zu", size, needed);
  }
  if (needed == 0) return Status();
  CUFLASH_REQUIRE(workspace != nullptr, "workspace must not be NULL: %zu bytes are needed", needed);
  CUFLASH_REQUIRE(
      reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment == 0,
      "workspace (%p) must be aligned to %zu bytes",
      workspace,
      kWorkspaceAlignment
  );
  const auto first = reinterpret_cast<uintptr_t>(workspace);
  return memory.check_output({"workspace", first, first + (needed - 1), /*is_output=*/true, /*dense=*/true});
}

}  // namespace cuflash
