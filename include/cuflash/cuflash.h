/* SPDX-License-Identifier: MIT */
/*
 * libcuflash: exact FlashAttention, forward and backward, behind a plain C ABI.
 *
 * This header is the manual of the library.
 *
 * WHAT IS COMPUTED
 *   For batch entry b, query head h (which reads key head h_k = h / (num_heads / num_heads_k)), query row i, key row j:
 *
 *     s_ij  = softcap(softmax_scale * q_i . k_j) - slope_h * |i + off - j|     softcap(x) = c * tanh(x / c) if c > 0, else x
 *     lse_i = ln sum_j exp(s_ij)                                               over the keys j that row i sees
 *     o_i   = sum_j exp(s_ij - lse_i) v_j
 *
 *   without ever storing the matrix s (Dao et al., "FlashAttention", NeurIPS 2022, Algorithms 1 and 4; Dao,
 *   "FlashAttention-2", ICLR 2024, section 3.1). The gradients are given at cuflashBackward().
 *
 * CONVENTIONS, valid for every function
 *   - Tensors are row-major in the shapes given here, with strides in ELEMENTS. The last dimension has stride 1.
 *   - Shapes: q, dq (batch, seqlen_q, num_heads, head_dim); k, dk (batch, seqlen_k, num_heads_k, head_dim);
 *     v, dv (batch, seqlen_k, num_heads_k, head_dim_v); o, dout (batch, seqlen_q, num_heads, head_dim_v).
 *     The order in memory is whatever the strides say: BSHD, BHSD, slices of a packed QKV tensor and broadcast inputs
 *     (stride 0) are all served.
 *   - lse and dlse are fp32, contiguous: (batch, num_heads, seqlen_q); if cu_seqlens_q is given, (num_heads, total_q).
 *     lse is the natural logarithm of the sum of exponentials of the scaled (capped, biased) scores.
 *   - A row that sees no key has o = 0, lse = -inf and dq = 0, and adds nothing to dk and dv.
 *   - Outputs and gradients are written, never accumulated into. Every row that exists is written; bytes between
 *     rows, rows past a used length and everything else keep their content.
 *   - An output must not overlap an input, another output or the workspace. Refused is what the arguments prove: two at
 *     one address, and a tensor without gaps that holds the first or the last byte of another.
 *   - Sums are accumulated in fp32 at least (fp64 in the host kernel), whatever the dtype.
 *
 * CALLS
 *   - There is no handle and no initialisation. A call reads its parameter struct, validates it, picks a kernel and
 *     enqueues it on the stream. It never allocates device memory, synchronises, changes the current device, throws,
 *     exits or prints (unless the environment variable CUFLASH_LOG asks for it).
 *   - Calls are thread-safe: any thread, any stream, any device. The current CUDA device is used; pointers, workspace
 *     and stream must belong to it. Two calls that may run at the same time must not share a workspace.
 *   - Calls can be captured into CUDA graphs. In a process where the kernel has not run yet, call the matching
 *     ...Preload() once before capturing, since CUDA may load kernel code lazily and that is not allowed in a capture.
 *   - With device = CUFLASH_DEVICE_HOST all pointers are ordinary host memory (cu_seqlens included), the stream is
 *     ignored, and the call returns when the result is complete. No GPU or driver is needed.
 *   - Bad arguments: a status is returned, nothing is enqueued and nothing is written.
 *     cuflashGetLastErrorMessage() then names the argument, its value and what is accepted.
 *
 * ENVIRONMENT, read once per process
 *   CUFLASH_KERNEL=name    forces a kernel for calls whose params.kernel is NULL; an error if it cannot serve the call
 *   CUFLASH_LOG=dispatch   prints to stderr what was asked and which kernel was chosen or refused, and why
 *
 * GROWTH
 *   Parameter structs begin with struct_size and grow only at the end; zero is every field's default, with the meaning
 *   "as before". A struct larger than the library knows is accepted if the part that it does not know is all zero.
 */
#ifndef CUFLASH_CUFLASH_H_
#define CUFLASH_CUFLASH_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CUFLASH_API __attribute__((visibility("default")))
#else
#define CUFLASH_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ---------------------------------------------------------------------------------------------------- */

#define CUFLASH_VERSION_MAJOR 0
#define CUFLASH_VERSION_MINOR 1
#define CUFLASH_VERSION_PATCH 0
#define CUFLASH_VERSION (CUFLASH_VERSION_MAJOR * 10000 + CUFLASH_VERSION_MINOR * 100 + CUFLASH_VERSION_PATCH)

/* CUFLASH_VERSION of the library that is loaded, to compare with that of the header. */
CUFLASH_API int32_t cuflashGetVersion(void);

/* One line of text: version, CUDA toolkit, kernel families and the GPU architectures that each holds code for.
 * Static storage, never NULL. */
CUFLASH_API const char* cuflashGetBuildInfo(void);

/* ---- Types ------------------------------------------------------------------------------------------------------ */

/* All enumerations are int32_t, so that struct layouts do not depend on compiler options. Values never change. */

typedef int32_t cuflashStatus_t;
enum {
  CUFLASH_STATUS_SUCCESS = 0,
  CUFLASH_STATUS_INVALID_ARGUMENT = 1,    /* an argument breaks a rule of this header                              */
  CUFLASH_STATUS_NOT_SUPPORTED = 2,       /* valid, but no kernel (or not the forced one) serves it on this device */
  CUFLASH_STATUS_WORKSPACE_TOO_SMALL = 3, /* workspace_size is below what ...GetWorkspaceSize() says               */
  CUFLASH_STATUS_CUDA_ERROR = 4,          /* a CUDA runtime call failed; the message has its name                  */
  CUFLASH_STATUS_INTERNAL_ERROR = 5,      /* a defect of the library                                               */
  CUFLASH_STATUS_NO_DEVICE = 6            /* no CUDA driver or no CUDA device                                      */
};

/* The values are those of cudaDataType_t. */
typedef int32_t cuflashDataType_t;
enum { CUFLASH_R_32F = 0, CUFLASH_R_16F = 2, CUFLASH_R_16BF = 14 };

/* Where all pointers of a call live, and where it runs. */
typedef int32_t cuflashDevice_t;
enum { CUFLASH_DEVICE_CUDA = 0, CUFLASH_DEVICE_HOST = 1 };

/* Which keys row i sees. CAUSAL is WINDOW with window_left -1 and window_right 0. */
typedef int32_t cuflashMask_t;
enum {
  CUFLASH_MASK_NONE = 0,
  CUFLASH_MASK_CAUSAL = 1, /* j <= i + off                                            */
  CUFLASH_MASK_WINDOW = 2  /* i + off - window_left <= j <= i + off + window_right    */
};

/* Where a mask's diagonal and ALiBi's distance 0 lie if a batch entry has more keys than queries or fewer:
 *   BOTTOM_RIGHT  off = seqlen_k - seqlen_q  (FlashAttention since 2.1)
 *   TOP_LEFT      off = 0                    (the default of cuDNN and PyTorch)
 *
 *   causal,  2 queries, 5 keys:   TOP_LEFT  1 0 0 0 0     BOTTOM_RIGHT  1 1 1 1 0
 *                                           1 1 0 0 0                   1 1 1 1 1
 *   causal,  5 queries, 2 keys:   TOP_LEFT  1 0           BOTTOM_RIGHT  0 0
 *                                           1 1                         0 0
 *                                           1 1                         0 0
 *                                           1 1                         1 0
 *                                           1 1                         1 1
 */
typedef int32_t cuflashAlignment_t;
enum { CUFLASH_ALIGN_BOTTOM_RIGHT = 0, CUFLASH_ALIGN_TOP_LEFT = 1 };

/* A tensor: base address, aligned to its element, and three strides in elements, none negative. The stride of a
 * dimension of extent 1 is ignored. Inputs may have stride 0 (broadcast); an output's elements must be distinct.
 * batch_stride is ignored where cu_seqlens packs all sequences into one run of rows. */
typedef struct cuflashConstTensor {
  const void* data;
  int64_t batch_stride;
  int64_t row_stride;
  int64_t head_stride;
} cuflashConstTensor_t;

typedef struct cuflashTensor {
  void* data;
  int64_t batch_stride;
  int64_t row_stride;
  int64_t head_stride;
} cuflashTensor_t;

/* A CUDA stream: cudaStream_t and CUstream are this type. */
typedef struct CUstream_st* cuflashStream_t;

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

/*
 * Variable lengths. With cu_seqlens_q, q and o hold total_q rows in which batch entry b owns rows cu_seqlens_q[b] to
 * cu_seqlens_q[b + 1] - 1 (batch + 1 ascending int32 values in device memory, starting at 0), and seqlen_q is an upper
 * bound of the lengths: a longer sequence is cut to it. Values that do not ascend give entries rows in common, and which
 * of their results stays in these is not defined. The same holds for cu_seqlens_k with k, v, total_k and
 * seqlen_k. seqused_q and seqused_k (batch int32 values each) shorten entry b to its first seqused[b] rows, packed or
 * not. Lengths are clamped on the device: no value can cause an access outside of the given tensors. Alignment and
 * ALiBi use the lengths after all this.
 */
typedef struct cuflashForwardParams {
  size_t struct_size; /* sizeof(cuflashForwardParams_t) as the caller was compiled                                  */

  cuflashDataType_t dtype; /* of q, k, v and o                                                                      */
  cuflashDevice_t device;  /* where the pointers live                                                               */
  int32_t batch;           /* >= 0                                                                                  */
  int32_t num_heads;       /* query heads, a multiple of num_heads_k                                                */
  int32_t num_heads_k;     /* key and value heads                                                                   */
  int32_t seqlen_q;        /* query rows; with cu_seqlens_q an upper bound of them                                  */
  int32_t seqlen_k;        /* key rows; with cu_seqlens_k an upper bound of them                                    */
  int32_t head_dim;        /* of q and k, 1 to 256                                                                  */
  int32_t head_dim_v;      /* of v and o, 1 to 256; 0 means head_dim                                                */
  cuflashMask_t mask;
  cuflashAlignment_t alignment;
  int32_t window_left;  /* keys seen before the diagonal, -1 unlimited; 0 unless mask is CUFLASH_MASK_WINDOW        */
  int32_t window_right; /* keys seen after the diagonal, -1 unlimited; 0 unless mask is CUFLASH_MASK_WINDOW         */
  float softmax_scale;  /* 0 means 1 / sqrt(head_dim); may be negative, must be finite                              */
  float softcap;        /* 0 means none; otherwise positive and finite                                              */
  int32_t reserved0;    /* 0                                                                                        */

  int64_t total_q; /* rows of q and o if cu_seqlens_q is given, else 0                                              */
  int64_t total_k; /* rows of k and v if cu_seqlens_k is given, else 0                                              */
  const int32_t* cu_seqlens_q; /* (batch + 1), or NULL: every entry has seqlen_q rows                               */
  const int32_t* cu_seqlens_k; /* (batch + 1), or NULL                                                              */
  const int32_t* seqused_q;    /* (batch), or NULL                                                                  */
  const int32_t* seqused_k;    /* (batch), or NULL                                                                  */
  const float* alibi_slopes;   /* (num_heads), or (batch, num_heads) if alibi_batch_stride > 0, or NULL             */
  int64_t alibi_batch_stride;  /* elements from one batch entry's slopes to the next; 0: shared by all              */

  cuflashConstTensor_t q;
  cuflashConstTensor_t k;
  cuflashConstTensor_t v;
  cuflashTensor_t o;
  float* softmax_lse; /* see CONVENTIONS; NULL if no backward follows                                               */
  const char* kernel; /* NULL: the library chooses; else a name from cuflashGetKernelInfo(), "scalar" say           */

  /* Reserved for features to come. Refused with "not supported yet" unless all are 0. */
  const void* bias;
  int64_t bias_batch_stride;
  int64_t bias_head_stride;
  int64_t bias_row_stride;
  const float* sinks;
  uint64_t dropout_seed;
  uint64_t dropout_offset;
  float dropout_p;
  int32_t page_size;
  const int32_t* page_table;
  int64_t page_table_batch_stride;
  const float* q_descale;
  const float* k_descale;
  const float* v_descale;
} cuflashForwardParams_t;

/* Sets *params to all defaults and struct_size to the given one: sizeof(cuflashForwardParams_t), or for a caller without
 * this header the size that it knows. Nothing past struct_size bytes is written.
 * \retval INVALID_ARGUMENT  params is NULL, or struct_size is not one that this library accepts */
CUFLASH_API cuflashStatus_t cuflashForwardParamsInit(cuflashForwardParams_t* params, size_t struct_size);

/* Bytes of workspace that cuflashForward() needs with these params on the current device; 0 is possible. A function of
 * the params and the device alone: no pointer is read, no memory is touched on the device. Data pointers may still be
 * NULL and then count as 16-byte aligned; optional pointers say by not being NULL that they will be used.
 * \retval the statuses of cuflashForward() but for the workspace's */
CUFLASH_API cuflashStatus_t
cuflashForwardGetWorkspaceSize(const cuflashForwardParams_t* params, size_t* workspace_size);

/* o and softmax_lse as defined at the top.
 * Aliasing      inputs may overlap each other; outputs overlap nothing
 * NULL          softmax_lse, and data pointers of tensors without elements
 * workspace     workspace_size bytes at a 256-byte aligned address, apart from all tensors; NULL if 0 bytes are needed.
 *               Its content before and after the call means nothing
 * stream        asynchronous; capturable
 * determinism   bitwise repeatable on one device with one kernel; an entry's result does not depend on its neighbours
 * \retval SUCCESS              enqueued, or nothing to do
 * \retval INVALID_ARGUMENT     an argument breaks a rule; also a workspace that is NULL or not aligned
 * \retval NOT_SUPPORTED        no kernel serves this, or the forced one does not; the message has each kernel's reason
 * \retval WORKSPACE_TOO_SMALL  workspace_size is too small
 * \retval NO_DEVICE            device is CUFLASH_DEVICE_CUDA and there is no CUDA driver or device
 * \retval CUDA_ERROR           the launch failed, or an earlier asynchronous error surfaced in it */
CUFLASH_API cuflashStatus_t
cuflashForward(const cuflashForwardParams_t* params, void* workspace, size_t workspace_size, cuflashStream_t stream);

/* A dry run: writes to buffer which kernel cuflashForward() would run, what each other kernel answers (chosen, declined:
 * "could, but another is faster here", cannot) with its reason, and the workspace size, as NUL-terminated text cut to
 * buffer_size. required_size (may be NULL) receives the size of the whole text with its NUL. buffer may be NULL if
 * buffer_size is 0. Data pointers may be NULL as for the size query.
 * \retval the statuses of cuflashForwardGetWorkspaceSize(). With NOT_SUPPORTED, and if CUFLASH_KERNEL names no kernel,
 *         the text is written too and ends with the error; with any other failure it is empty and *required_size is 1 */
CUFLASH_API cuflashStatus_t
cuflashForwardExplain(const cuflashForwardParams_t* params, char* buffer, size_t buffer_size, size_t* required_size);

/* Loads the code of the kernels that cuflashForward() would launch, so that the first real call can be captured into a
 * CUDA graph and takes no loading time. Once per process, device and set of params is enough. May synchronise.
 * \retval the statuses of cuflashForwardGetWorkspaceSize() */
CUFLASH_API cuflashStatus_t cuflashForwardPreload(const cuflashForwardParams_t* params);

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* The first part is that of cuflashForwardParams_t, and must hold the values that the forward call was given. */
typedef struct cuflashBackwardParams {
  size_t struct_size; /* sizeof(cuflashBackwardParams_t) as the caller was compiled                                 */

  cuflashDataType_t dtype; /* of all tensors but lse and dlse                                                       */
  cuflashDevice_t device;
  int32_t batch;
  int32_t num_heads;
  int32_t num_heads_k;
  int32_t seqlen_q;
  int32_t seqlen_k;
  int32_t head_dim;
  int32_t head_dim_v;
  cuflashMask_t mask;
  cuflashAlignment_t alignment;
  int32_t window_left;
  int32_t window_right;
  float softmax_scale;
  float softcap;
  int32_t deterministic; /* 1: bitwise repeatable gradients; 0: a faster order of sums, perhaps a larger workspace  */

  int64_t total_q;
  int64_t total_k;
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_k;
  const int32_t* seqused_q;
  const int32_t* seqused_k;
  const float* alibi_slopes;
  int64_t alibi_batch_stride;

  cuflashConstTensor_t q;
  cuflashConstTensor_t k;
  cuflashConstTensor_t v;
  cuflashConstTensor_t o;    /* as cuflashForward() wrote it                                                        */
  cuflashConstTensor_t dout; /* gradient of o                                                                       */
  const float* softmax_lse;  /* as cuflashForward() wrote it                                                        */
  const float* dlse;         /* gradient of softmax_lse in the same layout, or NULL: zero                           */
  cuflashTensor_t dq;
  cuflashTensor_t dk;
  cuflashTensor_t dv;
  const char* kernel;

  /* Reserved for features to come. Refused with "not supported yet" unless all are 0. */
  const void* bias;
  int64_t bias_batch_stride;
  int64_t bias_head_stride;
  int64_t bias_row_stride;
  const float* sinks;
  uint64_t dropout_seed;
  uint64_t dropout_offset;
  float dropout_p;
  int32_t page_size;
  const int32_t* page_table;
  int64_t page_table_batch_stride;
  const float* q_descale;
  const float* k_descale;
  const float* v_descale;
  void* dbias;
  float* dsinks;
} cuflashBackwardParams_t;

/* As cuflashForwardParamsInit(). */
CUFLASH_API cuflashStatus_t cuflashBackwardParamsInit(cuflashBackwardParams_t* params, size_t struct_size);

/* As cuflashForwardGetWorkspaceSize(). */
CUFLASH_API cuflashStatus_t
cuflashBackwardGetWorkspaceSize(const cuflashBackwardParams_t* params, size_t* workspace_size);

/* Gradients of sum(o * dout) + sum(softmax_lse * dlse) (Dao et al. 2022, Algorithm 4; with g the derivative of softcap):
 *
 *   p_ij  = exp(s_ij - lse_i)          dp_ij = dout_i . v_j       delta_i = dout_i . o_i
 *   ds_ij = p_ij * (dp_ij - delta_i + dlse_i) * g_ij              g_ij = 1 - tanh(softmax_scale * q_i . k_j / c)^2
 *   dv_j  = sum_i p_ij dout_i          dq_i = softmax_scale * sum_j ds_ij k_j       dk_j = softmax_scale * sum_i ds_ij q_i
 *
 * dk_j and dv_j also sum over the query heads that read key head h_k. All three gradients are always written; keys that
 * no row sees get zeros.
 * NULL          dlse, and data pointers of tensors without elements
 * determinism   bitwise repeatable if deterministic is 1
 * The rest, and the statuses, as for cuflashForward(). */
CUFLASH_API cuflashStatus_t
cuflashBackward(const cuflashBackwardParams_t* params, void* workspace, size_t workspace_size, cuflashStream_t stream);

/* As cuflashForwardExplain(). */
CUFLASH_API cuflashStatus_t
cuflashBackwardExplain(const cuflashBackwardParams_t* params, char* buffer, size_t buffer_size, size_t* required_size);

/* As cuflashForwardPreload(). */
CUFLASH_API cuflashStatus_t cuflashBackwardPreload(const cuflashBackwardParams_t* params);

/* ---- Kernels ---------------------------------------------------------------------------------------------------- */

typedef int32_t cuflashOperation_t;
enum { CUFLASH_OP_FORWARD = 0, CUFLASH_OP_BACKWARD = 1 };

/* Bits of cuflashKernelInfo_t.dtypes. */
enum { CUFLASH_DTYPE_BIT_32F = 1, CUFLASH_DTYPE_BIT_16F = 2, CUFLASH_DTYPE_BIT_16BF = 4 };

/* Bits of cuflashKernelInfo_t.features: what a call can ask for beyond plain attention over 16-byte aligned tensors. */
enum {
  CUFLASH_FEATURE_CAUSAL = 1,            /* a mask with window_left -1 and window_right 0              */
  CUFLASH_FEATURE_WINDOW = 2,            /* any other window                                           */
  CUFLASH_FEATURE_TOP_LEFT = 4,          /* alignment TOP_LEFT with a mask or ALiBi                    */
  CUFLASH_FEATURE_GQA = 8,               /* num_heads_k < num_heads                                    */
  CUFLASH_FEATURE_VARLEN = 16,           /* cu_seqlens_q or cu_seqlens_k                               */
  CUFLASH_FEATURE_SEQUSED = 32,          /* seqused_q or seqused_k                                     */
  CUFLASH_FEATURE_SOFTCAP = 64,          /* softcap > 0                                                */
  CUFLASH_FEATURE_ALIBI = 128,           /* alibi_slopes                                               */
  CUFLASH_FEATURE_HEAD_DIM_V = 256,      /* head_dim_v other than head_dim                             */
  CUFLASH_FEATURE_UNALIGNED = 512,       /* an address or a stride that is no multiple of 16 bytes     */
  CUFLASH_FEATURE_NEGATIVE_SCALE = 1024, /* softmax_scale < 0                                          */
  CUFLASH_FEATURE_DLSE = 2048,           /* dlse (backward)                                            */
  CUFLASH_FEATURE_DETERMINISTIC = 4096   /* deterministic (backward)                                   */
};

typedef struct cuflashKernelInfo {
  size_t struct_size;           /* in: sizeof(cuflashKernelInfo_t) as the caller was compiled; fields unknown here: 0 */
  const char* name;             /* what params.kernel and CUFLASH_KERNEL take                                       */
  const char* architectures;    /* GPU code in this binary, "sm_80 sm_90 compute_90" say; "" for the host kernel    */
  cuflashOperation_t operation; /* one row per name and operation                                                   */
  cuflashDevice_t device;
  int32_t min_sm; /* lowest and highest compute capability served, 90 for 9.0; 0 for the host kernel          */
  int32_t max_sm;
  int32_t dtypes;       /* CUFLASH_DTYPE_BIT_...                                                                    */
  int32_t features;     /* CUFLASH_FEATURE_...                                                                      */
  int32_t max_head_dim; /* of head_dim and head_dim_v                                                               */
  int32_t reserved0;
} cuflashKernelInfo_t;

/* Number of rows that cuflashGetKernelInfo() knows: all kernels of this binary in order of preference. */
CUFLASH_API int32_t cuflashGetKernelCount(void);

/* Fills *info for 0 <= index < cuflashGetKernelCount(). Strings have static storage.
 * \retval INVALID_ARGUMENT  index out of range, info NULL or its struct_size wrong */
CUFLASH_API cuflashStatus_t cuflashGetKernelInfo(int32_t index, cuflashKernelInfo_t* info);

/* ---- Errors ----------------------------------------------------------------------------------------------------- */

/* "CUFLASH_STATUS_SUCCESS" and so on; "unknown cuflashStatus_t" for other values. Static storage. */
CUFLASH_API const char* cuflashGetStatusString(cuflashStatus_t status);

/* Why this thread's latest failing call failed, as a sentence; "" if none has. Valid until the thread's next failing
 * call. A call that succeeds leaves it as it is. */
CUFLASH_API const char* cuflashGetLastErrorMessage(void);

#ifdef __cplusplus
}
#endif

#endif /* CUFLASH_CUFLASH_H_ */
