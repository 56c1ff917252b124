/* SPDX-License-Identifier: MIT */
/* The binary interface as a C99 program sees it. Every number here is frozen: a struct may grow at its end, and then
 * gets new lines and a new size; no existing line ever changes. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cuflash/cuflash.h"

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "FAILED: %s\n", what);
  ++failures;
}

typedef struct {
  const char* name;
  size_t frozen; /* offset */
  size_t offset;
  size_t size;
} Field;

#define FIELD(type, name, frozen) \
  { #type "." #name, frozen, offsetof(type, name), sizeof(((type*)0)->name) }

/* Fields lie where they are frozen, and one after the other: padding would be bytes that no rule covers. */
static void check_layout(const char* type, const Field* fields, size_t count, size_t size, size_t frozen_size) {
  size_t end = 0;
  size_t i;
  for (i = 0; i < count; ++i) {
    expect(fields[i].offset == fields[i].frozen, fields[i].name);
    if (fields[i].offset != end) {
      fprintf(stderr, "FAILED: a field or padding that is not listed lies before %s\n", fields[i].name);
      ++failures;
    }
    end = fields[i].offset + fields[i].size;
  }
  expect(end == size && size == frozen_size, type);
}

static const Field const_tensor_fields[] = {
    FIELD(cuflashConstTensor_t, data, 0),
    FIELD(cuflashConstTensor_t, batch_stride, 8),
    FIELD(cuflashConstTensor_t, row_stride, 16),
    FIELD(cuflashConstTensor_t, head_stride, 24),
};

static const Field tensor_fields[] = {
    FIELD(cuflashTensor_t, data, 0),
    FIELD(cuflashTensor_t, batch_stride, 8),
    FIELD(cuflashTensor_t, row_stride, 16),
    FIELD(cuflashTensor_t, head_stride, 24),
};

static const Field forward_params_fields[] = {
    FIELD(cuflashForwardParams_t, struct_size, 0),
    FIELD(cuflashForwardParams_t, dtype, 8),
    FIELD(cuflashForwardParams_t, device, 12),
    FIELD(cuflashForwardParams_t, batch, 16),
    FIELD(cuflashForwardParams_t, num_heads, 20),
    FIELD(cuflashForwardParams_t, num_heads_k, 24),
    FIELD(cuflashForwardParams_t, seqlen_q, 28),
    FIELD(cuflashForwardParams_t, seqlen_k, 32),
    FIELD(cuflashForwardParams_t, head_dim, 36),
    FIELD(cuflashForwardParams_t, head_dim_v, 40),
    FIELD(cuflashForwardParams_t, mask, 44),
    FIELD(cuflashForwardParams_t, alignment, 48),
    FIELD(cuflashForwardParams_t, window_left, 52),
    FIELD(cuflashForwardParams_t, window_right, 56),
    FIELD(cuflashForwardParams_t, softmax_scale, 60),
    FIELD(cuflashForwardParams_t, softcap, 64),
    FIELD(cuflashForwardParams_t, reserved0, 68),
    FIELD(cuflashForwardParams_t, total_q, 72),
    FIELD(cuflashForwardParams_t, total_k, 80),
    FIELD(cuflashForwardParams_t, cu_seqlens_q, 88),
    FIELD(cuflashForwardParams_t, cu_seqlens_k, 96),
    FIELD(cuflashForwardParams_t, seqused_q, 104),
    FIELD(cuflashForwardParams_t, seqused_k, 112),
    FIELD(cuflashForwardParams_t, alibi_slopes, 120),
    FIELD(cuflashForwardParams_t, alibi_batch_stride, 128),
    FIELD(cuflashForwardParams_t, q, 136),
    FIELD(cuflashForwardParams_t, k, 168),
    FIELD(cuflashForwardParams_t, v, 200),
    FIELD(cuflashForwardParams_t, o, 232),
    FIELD(cuflashForwardParams_t, softmax_lse, 264),
    FIELD(cuflashForwardParams_t, kernel, 272),
    FIELD(cuflashForwardParams_t, bias, 280),
    FIELD(cuflashForwardParams_t, bias_batch_stride, 288),
    FIELD(cuflashForwardParams_t, bias_head_stride, 296),
    FIELD(cuflashForwardParams_t, bias_row_stride, 304),
    FIELD(cuflashForwardParams_t, sinks, 312),
    FIELD(cuflashForwardParams_t, dropout_seed, 320),
    FIELD(cuflashForwardParams_t, dropout_offset, 328),
    FIELD(cuflashForwardParams_t, dropout_p, 336),
    FIELD(cuflashForwardParams_t, page_size, 340),
    FIELD(cuflashForwardParams_t, page_table, 344),
    FIELD(cuflashForwardParams_t, page_table_batch_stride, 352),
    FIELD(cuflashForwardParams_t, q_descale, 360),
    FIELD(cuflashForwardParams_t, k_descale, 368),
    FIELD(cuflashForwardParams_t, v_descale, 376),
};

static const Field backward_params_fields[] = {
    FIELD(cuflashBackwardParams_t, struct_size, 0),
    FIELD(cuflashBackwardParams_t, dtype, 8),
    FIELD(cuflashBackwardParams_t, device, 12),
    FIELD(cuflashBackwardParams_t, batch, 16),
    FIELD(cuflashBackwardParams_t, num_heads, 20),
    FIELD(cuflashBackwardParams_t, num_heads_k, 24),
    FIELD(cuflashBackwardParams_t, seqlen_q, 28),
    FIELD(cuflashBackwardParams_t, seqlen_k, 32),
    FIELD(cuflashBackwardParams_t, head_dim, 36),
    FIELD(cuflashBackwardParams_t, head_dim_v, 40),
    FIELD(cuflashBackwardParams_t, mask, 44),
    FIELD(cuflashBackwardParams_t, alignment, 48),
    FIELD(cuflashBackwardParams_t, window_left, 52),
    FIELD(cuflashBackwardParams_t, window_right, 56),
    FIELD(cuflashBackwardParams_t, softmax_scale, 60),
    FIELD(cuflashBackwardParams_t, softcap, 64),
    FIELD(cuflashBackwardParams_t, deterministic, 68),
    FIELD(cuflashBackwardParams_t, total_q, 72),
    FIELD(cuflashBackwardParams_t, total_k, 80),
    FIELD(cuflashBackwardParams_t, cu_seqlens_q, 88),
    FIELD(cuflashBackwardParams_t, cu_seqlens_k, 96),
    FIELD(cuflashBackwardParams_t, seqused_q, 104),
    FIELD(cuflashBackwardParams_t, seqused_k, 112),
    FIELD(cuflashBackwardParams_t, alibi_slopes, 120),
    FIELD(cuflashBackwardParams_t, alibi_batch_stride, 128),
    FIELD(cuflashBackwardParams_t, q, 136),
    FIELD(cuflashBackwardParams_t, k, 168),
    FIELD(cuflashBackwardParams_t, v, 200),
    FIELD(cuflashBackwardParams_t, o, 232),
    FIELD(cuflashBackwardParams_t, dout, 264),
    FIELD(cuflashBackwardParams_t, softmax_lse, 296),
    FIELD(cuflashBackwardParams_t, dlse, 304),
    FIELD(cuflashBackwardParams_t, dq, 312),
    FIELD(cuflashBackwardParams_t, dk, 344),
    FIELD(cuflashBackwardParams_t, dv, 376),
    FIELD(cuflashBackwardParams_t, kernel, 408),
    FIELD(cuflashBackwardParams_t, bias, 416),
    FIELD(cuflashBackwardParams_t, bias_batch_stride, 424),
    FIELD(cuflashBackwardParams_t, bias_head_stride, 432),
    FIELD(cuflashBackwardParams_t, bias_row_stride, 440),
    FIELD(cuflashBackwardParams_t, sinks, 448),
    FIELD(cuflashBackwardParams_t, dropout_seed, 456),
    FIELD(cuflashBackwardParams_t, dropout_offset, 464),
    FIELD(cuflashBackwardParams_t, dropout_p, 472),
    FIELD(cuflashBackwardParams_t, page_size, 476),
    FIELD(cuflashBackwardParams_t, page_table, 480),
    FIELD(cuflashBackwardParams_t, page_table_batch_stride, 488),
    FIELD(cuflashBackwardParams_t, q_descale, 496),
    FIELD(cuflashBackwardParams_t, k_descale, 504),
    FIELD(cuflashBackwardParams_t, v_descale, 512),
    FIELD(cuflashBackwardParams_t, dbias, 520),
    FIELD(cuflashBackwardParams_t, dsinks, 528),
};

static const Field kernel_info_fields[] = {
    FIELD(cuflashKernelInfo_t, struct_size, 0),
    FIELD(cuflashKernelInfo_t, name, 8),
    FIELD(cuflashKernelInfo_t, architectures, 16),
    FIELD(cuflashKernelInfo_t, operation, 24),
    FIELD(cuflashKernelInfo_t, device, 28),
    FIELD(cuflashKernelInfo_t, min_sm, 32),
    FIELD(cuflashKernelInfo_t, max_sm, 36),
    FIELD(cuflashKernelInfo_t, dtypes, 40),
    FIELD(cuflashKernelInfo_t, features, 44),
    FIELD(cuflashKernelInfo_t, max_head_dim, 48),
    FIELD(cuflashKernelInfo_t, reserved0, 52),
};

static void check_layouts(void) {
  check_layout(
      "cuflashConstTensor_t",
      const_tensor_fields,
      sizeof(const_tensor_fields) / sizeof(Field),
      sizeof(cuflashConstTensor_t),
      32
  );
  check_layout("cuflashTensor_t", tensor_fields, sizeof(tensor_fields) / sizeof(Field), sizeof(cuflashTensor_t), 32);
  check_layout(
      "cuflashForwardParams_t",
      forward_params_fields,
      sizeof(forward_params_fields) / sizeof(Field),
      sizeof(cuflashForwardParams_t),
      384
  );
  check_layout(
      "cuflashBackwardParams_t",
      backward_params_fields,
      sizeof(backward_params_fields) / sizeof(Field),
      sizeof(cuflashBackwardParams_t),
      536
  );
  check_layout(
      "cuflashKernelInfo_t",
      kernel_info_fields,
      sizeof(kernel_info_fields) / sizeof(Field),
      sizeof(cuflashKernelInfo_t),
      56
  );
}

static void check_types(void) {
  expect(sizeof(cuflashStatus_t) == 4, "sizeof(cuflashStatus_t)");
  expect(sizeof(cuflashDataType_t) == 4, "sizeof(cuflashDataType_t)");
  expect(sizeof(cuflashDevice_t) == 4, "sizeof(cuflashDevice_t)");
  expect(sizeof(cuflashMask_t) == 4, "sizeof(cuflashMask_t)");
  expect(sizeof(cuflashAlignment_t) == 4, "sizeof(cuflashAlignment_t)");
  expect(sizeof(cuflashOperation_t) == 4, "sizeof(cuflashOperation_t)");
  expect(sizeof(cuflashStream_t) == sizeof(void*), "sizeof(cuflashStream_t)");
}

typedef struct {
  const char* name;
  int value;
  int frozen;
} Constant;

static void check_constants(void) {
  static const Constant constants[] = {
      {"CUFLASH_STATUS_SUCCESS", CUFLASH_STATUS_SUCCESS, 0},
      {"CUFLASH_STATUS_INVALID_ARGUMENT", CUFLASH_STATUS_INVALID_ARGUMENT, 1},
      {"CUFLASH_STATUS_NOT_SUPPORTED", CUFLASH_STATUS_NOT_SUPPORTED, 2},
      {"CUFLASH_STATUS_WORKSPACE_TOO_SMALL", CUFLASH_STATUS_WORKSPACE_TOO_SMALL, 3},
      {"CUFLASH_STATUS_CUDA_ERROR", CUFLASH_STATUS_CUDA_ERROR, 4},
      {"CUFLASH_STATUS_INTERNAL_ERROR", CUFLASH_STATUS_INTERNAL_ERROR, 5},
      {"CUFLASH_STATUS_NO_DEVICE", CUFLASH_STATUS_NO_DEVICE, 6},
      {"CUFLASH_R_32F", CUFLASH_R_32F, 0},
      {"CUFLASH_R_16F", CUFLASH_R_16F, 2},
      {"CUFLASH_R_16BF", CUFLASH_R_16BF, 14},
      {"CUFLASH_DEVICE_CUDA", CUFLASH_DEVICE_CUDA, 0},
      {"CUFLASH_DEVICE_HOST", CUFLASH_DEVICE_HOST, 1},
      {"CUFLASH_MASK_NONE", CUFLASH_MASK_NONE, 0},
      {"CUFLASH_MASK_CAUSAL", CUFLASH_MASK_CAUSAL, 1},
      {"CUFLASH_MASK_WINDOW", CUFLASH_MASK_WINDOW, 2},
      {"CUFLASH_ALIGN_BOTTOM_RIGHT", CUFLASH_ALIGN_BOTTOM_RIGHT, 0},
      {"CUFLASH_ALIGN_TOP_LEFT", CUFLASH_ALIGN_TOP_LEFT, 1},
      {"CUFLASH_OP_FORWARD", CUFLASH_OP_FORWARD, 0},
      {"CUFLASH_OP_BACKWARD", CUFLASH_OP_BACKWARD, 1},
      {"CUFLASH_DTYPE_BIT_32F", CUFLASH_DTYPE_BIT_32F, 1},
      {"CUFLASH_DTYPE_BIT_16F", CUFLASH_DTYPE_BIT_16F, 2},
      {"CUFLASH_DTYPE_BIT_16BF", CUFLASH_DTYPE_BIT_16BF, 4},
      {"CUFLASH_FEATURE_CAUSAL", CUFLASH_FEATURE_CAUSAL, 1},
      {"CUFLASH_FEATURE_WINDOW", CUFLASH_FEATURE_WINDOW, 2},
      {"CUFLASH_FEATURE_TOP_LEFT", CUFLASH_FEATURE_TOP_LEFT, 4},
      {"CUFLASH_FEATURE_GQA", CUFLASH_FEATURE_GQA, 8},
      {"CUFLASH_FEATURE_VARLEN", CUFLASH_FEATURE_VARLEN, 16},
      {"CUFLASH_FEATURE_SEQUSED", CUFLASH_FEATURE_SEQUSED, 32},
      {"CUFLASH_FEATURE_SOFTCAP", CUFLASH_FEATURE_SOFTCAP, 64},
      {"CUFLASH_FEATURE_ALIBI", CUFLASH_FEATURE_ALIBI, 128},
      {"CUFLASH_FEATURE_HEAD_DIM_V", CUFLASH_FEATURE_HEAD_DIM_V, 256},
      {"CUFLASH_FEATURE_UNALIGNED", CUFLASH_FEATURE_UNALIGNED, 512},
      {"CUFLASH_FEATURE_NEGATIVE_SCALE", CUFLASH_FEATURE_NEGATIVE_SCALE, 1024},
      {"CUFLASH_FEATURE_DLSE", CUFLASH_FEATURE_DLSE, 2048},
      {"CUFLASH_FEATURE_DETERMINISTIC", CUFLASH_FEATURE_DETERMINISTIC, 4096},
  };
  size_t i;
  for (i = 0; i < sizeof(constants) / sizeof(constants[0]); ++i) {
    expect(constants[i].value == constants[i].frozen, constants[i].name);
  }
}

/* Compiles only while every function has the signature that earlier callers were compiled against. */
typedef cuflashStatus_t (*ForwardRun)(const cuflashForwardParams_t*, void*, size_t, cuflashStream_t);
typedef cuflashStatus_t (*ForwardSize)(const cuflashForwardParams_t*, size_t*);
typedef cuflashStatus_t (*ForwardText)(const cuflashForwardParams_t*, char*, size_t, size_t*);
typedef cuflashStatus_t (*ForwardLoad)(const cuflashForwardParams_t*);
typedef cuflashStatus_t (*ForwardInit)(cuflashForwardParams_t*, size_t);
typedef cuflashStatus_t (*BackwardRun)(const cuflashBackwardParams_t*, void*, size_t, cuflashStream_t);
typedef cuflashStatus_t (*BackwardSize)(const cuflashBackwardParams_t*, size_t*);
typedef cuflashStatus_t (*BackwardText)(const cuflashBackwardParams_t*, char*, size_t, size_t*);
typedef cuflashStatus_t (*BackwardLoad)(const cuflashBackwardParams_t*);
typedef cuflashStatus_t (*BackwardInit)(cuflashBackwardParams_t*, size_t);
typedef cuflashStatus_t (*KernelInfo)(int32_t, cuflashKernelInfo_t*);
typedef int32_t (*Number)(void);
typedef const char* (*Text)(void);
typedef const char* (*StatusText)(cuflashStatus_t);

static const ForwardRun forward_run = cuflashForward;
static const ForwardSize forward_size = cuflashForwardGetWorkspaceSize;
static const ForwardText forward_text = cuflashForwardExplain;
static const ForwardLoad forward_load = cuflashForwardPreload;
static const ForwardInit forward_init = cuflashForwardParamsInit;
static const BackwardRun backward_run = cuflashBackward;
static const BackwardSize backward_size = cuflashBackwardGetWorkspaceSize;
static const BackwardText backward_text = cuflashBackwardExplain;
static const BackwardLoad backward_load = cuflashBackwardPreload;
static const BackwardInit backward_init = cuflashBackwardParamsInit;
static const KernelInfo kernel_info = cuflashGetKernelInfo;
static const Number kernel_count = cuflashGetKernelCount;
static const Number version = cuflashGetVersion;
static const Text build_info = cuflashGetBuildInfo;
static const Text last_error = cuflashGetLastErrorMessage;
static const StatusText status_string = cuflashGetStatusString;

static void check_init(void) {
  cuflashForwardParams_t forward;
  cuflashBackwardParams_t backward;
  static const cuflashForwardParams_t zero_forward;
  static const cuflashBackwardParams_t zero_backward;
  memset(&forward, 0xFF, sizeof(forward));
  expect(forward_init(&forward, sizeof(forward)) == CUFLASH_STATUS_SUCCESS, "cuflashForwardParamsInit");
  expect(forward.struct_size == sizeof(forward), "cuflashForwardParamsInit sets struct_size");
  forward.struct_size = 0;
  expect(memcmp(&forward, &zero_forward, sizeof(forward)) == 0, "cuflashForwardParamsInit zeroes all other bytes");
  memset(&backward, 0xFF, sizeof(backward));
  expect(backward_init(&backward, sizeof(backward)) == CUFLASH_STATUS_SUCCESS, "cuflashBackwardParamsInit");
  expect(backward.struct_size == sizeof(backward), "cuflashBackwardParamsInit sets struct_size");
  backward.struct_size = 0;
  expect(memcmp(&backward, &zero_backward, sizeof(backward)) == 0, "cuflashBackwardParamsInit zeroes all other bytes");
  expect(forward_init(NULL, sizeof(forward)) == CUFLASH_STATUS_INVALID_ARGUMENT, "init of a null forward struct");
  expect(backward_init(NULL, sizeof(backward)) == CUFLASH_STATUS_INVALID_ARGUMENT, "init of a null backward struct");
}

/* A caller that was compiled against a later header: the tail that this library does not know must stay untouched
 * past the size that the caller names, and be zero within it. */
static void check_init_of_other_sizes(void) {
  union {
    cuflashForwardParams_t params;
    unsigned char bytes[sizeof(cuflashForwardParams_t) + 16];
  } later;
  size_t i;
  memset(&later, 0xFF, sizeof(later));
  expect(forward_init(&later.params, sizeof(later.params) + 8) == CUFLASH_STATUS_SUCCESS, "init of a later struct");
  expect(later.params.struct_size == sizeof(later.params) + 8, "init keeps the caller's struct_size");
  for (i = sizeof(later.params); i < sizeof(later); ++i) {
    const int inside = i < sizeof(later.params) + 8;
    expect(later.bytes[i] == (inside ? 0x00 : 0xFF), "init writes the caller's bytes and no others");
  }
  memset(&later, 0xFF, sizeof(later));
  expect(
      forward_init(&later.params, sizeof(later.params) - 1) == CUFLASH_STATUS_INVALID_ARGUMENT,
      "init with a size that no version had"
  );
  for (i = 0; i < sizeof(later); ++i) expect(later.bytes[i] == 0xFF, "a refused init writes nothing");
}

static void check_calls(void) {
  cuflashForwardParams_t forward;
  cuflashBackwardParams_t backward;
  cuflashKernelInfo_t info;
  size_t size = 1;
  char text[64];
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);

  expect(version() == CUFLASH_VERSION, "cuflashGetVersion");
  expect(build_info() != NULL && build_info()[0] != 0, "cuflashGetBuildInfo");
  expect(last_error() != NULL, "cuflashGetLastErrorMessage");
  expect(strcmp(status_string(CUFLASH_STATUS_SUCCESS), "CUFLASH_STATUS_SUCCESS") == 0, "cuflashGetStatusString");
  expect(kernel_count() > 0, "cuflashGetKernelCount");
  expect(kernel_info(0, &info) == CUFLASH_STATUS_SUCCESS && info.name != NULL, "cuflashGetKernelInfo");

  /* An empty problem on the host is served without touching any pointer. */
  expect(forward_init(&forward, sizeof(forward)) == CUFLASH_STATUS_SUCCESS, "cuflashForwardParamsInit");
  forward.device = CUFLASH_DEVICE_HOST;
  forward.head_dim = 64;
  expect(forward_size(&forward, &size) == CUFLASH_STATUS_SUCCESS && size == 0, "cuflashForwardGetWorkspaceSize");
  expect(forward_run(&forward, NULL, 0, NULL) == CUFLASH_STATUS_SUCCESS, "cuflashForward");
  expect(forward_text(&forward, text, sizeof(text), &size) == CUFLASH_STATUS_SUCCESS, "cuflashForwardExplain");
  expect(forward_load(&forward) == CUFLASH_STATUS_SUCCESS, "cuflashForwardPreload");

  expect(backward_init(&backward, sizeof(backward)) == CUFLASH_STATUS_SUCCESS, "cuflashBackwardParamsInit");
  backward.device = CUFLASH_DEVICE_HOST;
  backward.head_dim = 64;
  expect(backward_size(&backward, &size) == CUFLASH_STATUS_SUCCESS && size == 0, "cuflashBackwardGetWorkspaceSize");
  expect(backward_run(&backward, NULL, 0, NULL) == CUFLASH_STATUS_SUCCESS, "cuflashBackward");
  expect(backward_text(&backward, text, sizeof(text), &size) == CUFLASH_STATUS_SUCCESS, "cuflashBackwardExplain");
  expect(backward_load(&backward) == CUFLASH_STATUS_SUCCESS, "cuflashBackwardPreload");
}

int main(void) {
  check_layouts();
  check_types();
  check_constants();
  check_init();
  check_init_of_other_sizes();
  check_calls();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
