/* SPDX-License-Identifier: MIT
 *
 * FlashAttention-3 behind a C interface: what compare_torch.py --flash3 loads, and flash3.cu implements. Nothing is
 * allocated by it. Tensors are (batch, row, head, head_dim) without gaps. The scale of the scores is 1/sqrt(head_dim);
 * causal hides the keys after a row, and needs equal lengths.
 */
#ifndef CUFLASH_BENCHMARKS_FLASH3_H
#define CUFLASH_BENCHMARKS_FLASH3_H

#include <stddef.h>
#include <stdint.h>

#define FLASH3_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Flash3Problem {
  /* Device memory. Forward reads q, k, v and writes o, lse; backward reads these and dout, and writes dq, dk, dv. */
  void *q, *k, *v, *o;
  float* lse; /* (batch, head, row), natural logarithm */
  void *dout, *dq, *dk, *dv;
  void* workspace;  /* of flash3_workspace_size() bytes, aligned to 256 */
  int32_t backward; /* 0: forward */
  int32_t bf16;     /* 0: fp16 */
  int32_t causal;
  int32_t batch, heads, heads_k, seqlen_q, seqlen_k, head_dim;
} Flash3Problem;

/* The commit of the source that the kernels were built from. */
FLASH3_API const char* flash3_commit(void);

/* Why a problem cannot be run; NULL if it can. Looks at no address. */
FLASH3_API const char* flash3_why_not(const Flash3Problem* problem);

/* Looks at no address. */
FLASH3_API size_t flash3_workspace_size(const Flash3Problem* problem);

/* Enqueues all that the call consists of on a cudaStream_t, with what has to be zero in the workspace set to zero.
 * Returns a cudaError_t. A launch that the kernels' own code finds to have failed ends the process. */
FLASH3_API int32_t flash3_run(const Flash3Problem* problem, void* stream);

#ifdef __cplusplus
}
#endif

#endif
