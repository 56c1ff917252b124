// SPDX-License-Identifier: MIT
// The host kernel on a thread with a small stack, as runtimes of other languages start them.
#include <gtest/gtest.h>

#include <pthread.h>

#include "host_attention.h"

namespace cuflash::test {
namespace {

constexpr size_t kStackBytes = 128 * 1024;

void run_largest_head(cuflashDataType_t dtype) {
  cuflashForwardParams_t shape = {};
  shape.dtype = dtype;
  shape.batch = 1;
  shape.num_heads = shape.num_heads_k = 1;
  shape.seqlen_q = shape.seqlen_k = 33;  // more than a tile, and few enough for the calling thread alone
  shape.head_dim = 256;
  HostAttention attention(shape);
  for (HostAttention::Bytes* tensor : {&attention.q, &attention.k, &attention.v, &attention.dout}) {
    for (size_t i = 0; i < attention.count(*tensor); ++i) attention.set(*tensor, i, 1.0f);
  }
  attention.forward();
  attention.backward();
  for (size_t i = 0; i < attention.count(attention.o); ++i) ASSERT_EQ(attention.get(attention.o, i), 1.0);
  for (size_t i = 0; i < attention.count(attention.dv); ++i) ASSERT_NEAR(attention.get(attention.dv, i), 1.0, 1e-2);
}

void* run_all(void*) {
  for (const cuflashDataType_t dtype : {CUFLASH_R_32F, CUFLASH_R_16F, CUFLASH_R_16BF}) run_largest_head(dtype);
  return nullptr;
}

TEST(SmallStackTest, ForwardAndBackwardOfTheLargestHead) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, run_all, nullptr), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  EXPECT_EQ(pthread_attr_destroy(&attributes), 0);
}

}  // namespace
}  // namespace cuflash::test
