// SPDX-License-Identifier: MIT
// One of each message about an argument, word for word.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "calls.h"

namespace cuflash::test {
namespace {

using Forward = cuflashForwardParams_t;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Sentence {
  std::function<void(Forward&)> change;
  const char* message;
};

TEST(MessageTest, AreSentencesWithFieldValueAndRule) {
  static const float kSlopes[8] = {};
  static const int32_t kLengths[4] = {};
  const std::vector<Sentence> sentences = {
      {[](Forward& p) { p.dtype = 1; },
       "dtype (1) must be CUFLASH_R_32F (0), CUFLASH_R_16F (2) or CUFLASH_R_16BF (14)"},
      {[](Forward& p) { p.device = 2; }, "device (2) must be CUFLASH_DEVICE_CUDA (0) or CUFLASH_DEVICE_HOST (1)"},
      {[](Forward& p) { p.batch = -1; }, "batch (-1) must not be negative"},
      {[](Forward& p) { p.num_heads = 5; }, "num_heads (5) must be a multiple of num_heads_k (2)"},
      {[](Forward& p) { p.head_dim = 257; }, "head_dim (257) must be 1 to 256"},
      {[](Forward& p) { p.head_dim_v = -1; }, "head_dim_v (-1) must be 1 to 256, or 0 for head_dim"},
      {[](Forward& p) { p.mask = 3; },
       "mask (3) must be CUFLASH_MASK_NONE (0), CUFLASH_MASK_CAUSAL (1) or CUFLASH_MASK_WINDOW (2)"},
      {[](Forward& p) { p.alignment = 2; },
       "alignment (2) must be CUFLASH_ALIGN_BOTTOM_RIGHT (0) or CUFLASH_ALIGN_TOP_LEFT (1)"},
      {[](Forward& p) { p.window_left = 4; }, "window_left (4) must be 0 unless mask is CUFLASH_MASK_WINDOW"},
      {[](Forward& p) {
         p.mask = CUFLASH_MASK_WINDOW;
         p.window_right = -2;
       },
       "window_right (-2) must be at least 0, or -1 for unlimited"},
      {[](Forward& p) { p.softmax_scale = kInf; }, "softmax_scale (inf) must be finite; 0 means 1 / sqrt(head_dim)"},
      {[](Forward& p) { p.softcap = -2.5f; }, "softcap (-2.5) must be positive and finite, or 0 for none"},
      {[](Forward& p) { p.alibi_batch_stride = 4; }, "alibi_batch_stride (4) must be 0 without alibi_slopes"},
      {[](Forward& p) {
         p.alibi_slopes = kSlopes;
         p.alibi_batch_stride = 3;
       },
       "alibi_batch_stride (3) must be at least num_heads, or 0 for slopes that all entries share"},
      {[](Forward& p) { p.total_q = 10; }, "total_q (10) must be 0 without cu_seqlens_q"},
      {[](Forward& p) {
         p.cu_seqlens_k = kLengths;
         p.total_k = -1;
       },
       "total_k (-1) must not be negative: it is the number of packed rows that cu_seqlens_k describes"},
      {[](Forward& p) {
         p.cu_seqlens_q = kLengths;
         p.total_q = int64_t{1} << 31;
       },
       "total_q (2147483648) must be at most 2^31 - 1"},
      {[](Forward& p) { p.seqused_q = reinterpret_cast<const int32_t*>(uintptr_t{0x1002}); },
       "seqused_q (0x1002) must be aligned to 4 bytes"},
      {[](Forward& p) { p.sinks = kSlopes; }, "sinks is not supported yet: it must be 0"},
      {[](Forward& p) { p.kernel = "fastest"; },
       "kernel (\"fastest\") must be one of: sm90 cp_async wmma register_tiled scalar host"},
      {[](Forward& p) { p.reserved0 = 1; }, "reserved0 (1) must be 0"},
      {[](Forward& p) { p.q.data = nullptr; }, "q.data must not be NULL"},
      {[](Forward& p) { p.k.data = reinterpret_cast<const void*>(uintptr_t{0x1001}); },
       "k.data (0x1001) must be aligned to its elements of 4 bytes"},
      {[](Forward& p) { p.v.head_stride = -8; }, "v.head_stride (-8) must not be negative"},
      {[](Forward& p) { p.o.row_stride = 31; },
       "o.row_stride (31) must be at least 32: elements of an output must not coincide"},
      {[](Forward& p) { p.q.batch_stride = INT64_MAX; },
       "q.batch_stride (9223372036854775807) is too large: with extent 2 the tensor passes the end of the address "
       "space"},
      {[](Forward& p) {
         p.softmax_lse = reinterpret_cast<float*>(uintptr_t{0x40000});
         p.q.data = reinterpret_cast<const void*>(uintptr_t{0x40010});
       },
       "softmax_lse (0x40000) overlaps q (0x40010): an output must not overlap an input, another output or the "
       "workspace"},
  };
  for (const Sentence& sentence : sentences) {
    SmallCall<Forward> call(CUFLASH_DEVICE_CUDA);
    sentence.change(call.params);
    EXPECT_NE(call.run(), CUFLASH_STATUS_SUCCESS) << sentence.message;
    EXPECT_STREQ(cuflashGetLastErrorMessage(), sentence.message);
  }
}

}  // namespace
}  // namespace cuflash::test
