/* SPDX-License-Identifier: MIT */
#include <cuflash/cuflash.h>
#include <stdio.h>

enum { kSeqlen = 128, kHeadDim = 64, kCount = kSeqlen * kHeadDim };
static float q[kCount], k[kCount], v[kCount], o[kCount]; /* one batch entry, one head: rows of kHeadDim values */

int main(void) {
  for (int i = 0; i < kCount; ++i) {
    q[i] = k[i] = 1.0f;           /* all scores are equal, so row i averages ... */
    v[i] = (float)(i / kHeadDim); /* ... 0, 1, ..., i */
  }
  cuflashForwardParams_t p = {
      .struct_size = sizeof p, .dtype = CUFLASH_R_32F, .device = CUFLASH_DEVICE_HOST, .batch = 1,
      .num_heads = 1, .num_heads_k = 1, .seqlen_q = kSeqlen, .seqlen_k = kSeqlen, .head_dim = kHeadDim,
      .mask = CUFLASH_MASK_CAUSAL, .q = {.data = q, .row_stride = kHeadDim}, .k = {.data = k, .row_stride = kHeadDim},
      .v = {.data = v, .row_stride = kHeadDim}, .o = {.data = o, .row_stride = kHeadDim}};
  if (cuflashForward(&p, NULL, 0, NULL) != CUFLASH_STATUS_SUCCESS) {
    fprintf(stderr, "%s\n", cuflashGetLastErrorMessage());
    return 1;
  }
  printf("row %d: %g\n", kSeqlen - 1, o[kCount - 1]); /* row 127: 63.5 */
  return 0;
}
