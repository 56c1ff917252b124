// SPDX-License-Identifier: MIT
// Features alone and in pairs, equalities bit for bit, and lengths that no caller should pass.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "support/call.h"
#include "support/cases.h"
#include "support/compare.h"
#include "support/conformance.h"
#include "support/target.h"

namespace cuflash::test {
namespace {

constexpr const char* kDTypes[] = {"fp32", "fp16", "bf16"};
constexpr const char* kOps[] = {"fwd", "bwd"};

// The lines with every dtype and direction.
std::vector<std::string> in_all_types(const std::vector<std::string>& lines) {
  std::vector<std::string> all;
  for (const std::string op : kOps) {
    for (const std::string dtype : kDTypes) {
      for (const std::string& line : lines) all.push_back("op=" + op + " dtype=" + dtype + " " + line);
    }
  }
  return all;
}

// ---- Every feature, and every pair of features. Of two values for one field the later one counts.

constexpr const char* kFeatures[] = {
    "mask=causal",
    "mask=window wl=9 wr=3",
    "mask=window wl=-1 wr=7",
    "align=top_left sk=97",
    "hk=2",
    "hk=1",
    "packed_q=1 packed_k=1",
    "packed_q=1",
    "packed_k=1",
    "used_q=1",
    "used_k=1",
    "softcap=2",
    "alibi=head",
    "alibi=batch",
    "dv=48",
    "d=72 dv=24",
    "layout=bhsd",
    "layout=packed",
    "layout=padded",
    "layout=broadcast",
    "layout=unaligned",
    "scale=-0.3",
    "dlse=1 det=1",
    "lse=0",
    "sq=1"};

TEST(FeaturesTest, AloneAndInPairs) {
  const std::string base = "b=3 h=4 hk=4 sq=66 sk=66 d=32 ";
  std::vector<std::string> lines = {base};
  uint32_t seed = 0;
  for (const std::string first : kFeatures) {
    for (const std::string second : kFeatures) {
      if (first > second) continue;
      lines.push_back(base + first + " " + second + " geo=" + std::to_string(++seed));
    }
  }
  std::vector<Case> cases;
  for (const std::string& line : in_all_types(lines)) cases.push_back(case_of(line));
  // The host kernel: each pair in one of the six combinations of type and direction.
  constexpr int32_t kNthOnHost[4] = {37, 5, 1, 1};
  constexpr int32_t kNthOnGpu[4] = {7, 1, 1, 1};
  const bool host = target().device() == CUFLASH_DEVICE_HOST;
  expect_conformance(every_nth(cases, host ? by_level(kNthOnHost) : by_level(kNthOnGpu)));
}

// Head dims for which kernels have code of their own: every feature alone.
TEST(FeaturesTest, AloneAtWideHeads) {
  std::vector<std::string> cases;
  for (const std::string op : kOps) {
    for (const std::string feature : kFeatures) {
      cases.push_back("op=" + op + " dtype=bf16 b=2 h=2 hk=2 sq=70 sk=70 d=136 dv=136 mask=causal " + feature);
      cases.push_back("op=" + op + " dtype=fp16 b=1 h=2 hk=2 sq=66 sk=66 d=192 dv=256 " + feature);
    }
  }
  expect_conformance(cases);
}

// More tiles under a mask than 132 multiprocessors take in a few turns: blocks that stay for several tiles choose an order.
TEST(FeaturesTest, ManyTiles) {
  expect_conformance(
      {"op=fwd dtype=bf16 b=2 h=120 hk=8 sq=200 sk=200 d=16 mask=causal",
       "op=fwd dtype=fp16 b=3 h=80 hk=80 sq=131 sk=40 d=72 mask=window wl=70 wr=9 align=top_left",
       "op=fwd dtype=bf16 b=8 h=60 hk=60 sq=140 sk=140 d=72 mask=causal packed_q=1 packed_k=1",
       "op=bwd dtype=bf16 b=2 h=120 hk=8 sq=200 sk=200 d=16 mask=causal"}
  );
}

// Many tiles of keys that the same rows see: how they come together in dq is a choice of its own, as is in which order where
// that counts, and at which rows tiles begin.
TEST(FeaturesTest, ManyTilesOfKeys) {
  expect_conformance(
      {"op=bwd dtype=bf16 b=1 h=2 hk=1 sq=300 sk=300 d=64",
       "op=bwd dtype=bf16 b=1 h=2 hk=1 sq=150 sk=1100 d=64 mask=causal",
       "op=bwd dtype=bf16 b=1 h=2 hk=1 sq=150 sk=1100 d=64 mask=causal det=1",
       "op=bwd dtype=fp16 b=1 h=1 hk=1 sq=1100 sk=1060 d=72 mask=window wl=500 wr=9 align=top_left det=1",
       "op=bwd dtype=bf16 b=1 h=1 hk=1 sq=70 sk=580 d=136 dv=200 mask=causal"}
  );
}

// ---- Equal bit for bit on one kernel

std::vector<Kernel> all_kernels() {
  std::vector<Kernel> kernels = kernels_of(Op::kForward, target().device());
  for (const Kernel& kernel : kernels_of(Op::kBackward, target().device())) kernels.push_back(kernel);
  return kernels;
}

void expect_same_bits(const std::string& line, const std::string& left, const std::string& right) {
  for (const Kernel& kernel : all_kernels()) {
    for (const std::string dtype : kDTypes) {
      const std::string common =
          std::string("op=") + (kernel.op == Op::kForward ? "fwd" : "bwd det=1") + " dtype=" + dtype + " " + line + " ";
      Scenario scenario = prepare(case_of(common + left)).scenario;
      if (!accepts(scenario, kernel.name)) continue;
      const std::vector<std::byte> expected = run_kernel(scenario, kernel.name);
      scenario.c = case_of(common + right);
      EXPECT_EQ(run_kernel(scenario, kernel.name), expected) << kernel.name << ": " << common << left << " | " << right;
    }
  }
}

TEST(SameBitsTest, CausalIsAWindow) {
  for (const std::string shape : {"sq=129 sk=129", "sq=40 sk=100", "sq=100 sk=40"}) {
    for (const std::string align : {"bottom_right", "top_left"}) {
      const std::string line = "b=2 h=2 hk=1 d=64 align=" + align + " " + shape;
      expect_same_bits(line, "mask=causal", "mask=window wl=-1 wr=0");
      expect_same_bits(line, "mask=causal", "mask=window wl=100000 wr=0");
    }
  }
}

TEST(SameBitsTest, WindowOverEverythingIsNone) {
  for (const std::string shape : {"sq=129 sk=129", "sq=40 sk=100", "sq=100 sk=40"}) {
    const std::string line = "b=2 h=2 hk=1 d=64 " + shape;
    expect_same_bits(line, "mask=none", "mask=window wl=-1 wr=-1");
    expect_same_bits(line, "mask=none", "mask=window wl=200 wr=2147483647");
  }
}

TEST(SameBitsTest, DefaultsWrittenOut) {
  expect_same_bits("b=2 h=2 hk=2 sq=50 sk=50 d=64", "", "scale=0.125");
  expect_same_bits("b=2 h=2 hk=2 sq=50 sk=50 d=64", "", "dv=64");
}

// A call for one entry of a batch: the same memory, pointers moved.
template <class TensorT>
void move_to_entry(int32_t entry, DType dtype, TensorT* tensor) {
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(tensor->data)>>, const std::byte, std::byte>;
  tensor->data = static_cast<Byte*>(tensor->data) + entry * tensor->batch_stride * static_cast<int64_t>(size_of(dtype));
}

template <class Params>
void move_common(int32_t entry, const Scenario& scenario, Params* p) {
  p->batch = 1;
  for (cuflashConstTensor_t* tensor : {&p->q, &p->k, &p->v}) move_to_entry(entry, scenario.c.dtype, tensor);
  p->softmax_lse += int64_t{entry} * scenario.c.heads * scenario.c.seqlen_q;
}

void move_to_entry(int32_t entry, const Scenario& scenario, Call* call) {
  const DType dtype = scenario.c.dtype;
  if (call->op == Op::kForward) {
    move_common(entry, scenario, &call->forward);
    move_to_entry(entry, dtype, &call->forward.o);
    return;
  }
  move_common(entry, scenario, &call->backward);
  for (cuflashConstTensor_t* tensor : {&call->backward.o, &call->backward.dout}) move_to_entry(entry, dtype, tensor);
  for (cuflashTensor_t* tensor : {&call->backward.dq, &call->backward.dk, &call->backward.dv}) {
    move_to_entry(entry, dtype, tensor);
  }
}

TEST(SameBitsTest, BatchIsItsEntriesOneByOne) {
  for (const std::string shape :
       {"h=4 hk=2 sq=70 sk=70 d=256", "h=4 hk=4 sq=130 sk=65 d=64 mask=causal", "h=2 hk=1 sq=1 sk=300 d=128"}) {
    for (const Kernel& kernel : all_kernels()) {
      for (const std::string dtype : kDTypes) {
        const std::string op = kernel.op == Op::kForward ? "op=fwd" : "op=bwd det=1";
        const Prepared prepared = prepare(case_of(op + " dtype=" + dtype + " b=3 " + shape));
        const Scenario& scenario = prepared.scenario;
        if (!accepts(scenario, kernel.name)) continue;
        const std::vector<std::byte> together = run_kernel(scenario, kernel.name);
        const std::unique_ptr<Memory> memory = target().open();
        Execution execution(scenario, kernel.name, *memory);
        for (int32_t entry = 0; entry < 3; ++entry) {
          Call one = execution.call();
          move_to_entry(entry, scenario, &one);
          ASSERT_EQ(
              one.run(execution.workspace(), execution.workspace_bytes(), memory->stream()), CUFLASH_STATUS_SUCCESS
          ) << cuflashGetLastErrorMessage();
        }
        EXPECT_EQ(execution.read(), together) << kernel.name << ": " << to_string(scenario.c);
      }
    }
  }
}

// ---- Lengths that no caller should pass

// Everything outside of the output buffers is unchanged.
void expect_inputs_and_red_zones(const Scenario& scenario, const std::vector<std::byte>& image) {
  std::vector<std::byte> allowed = scenario.image;
  const std::vector<Buffer> outputs = scenario.c.op == Op::kForward
                                          ? std::vector<Buffer>{Buffer::kO, Buffer::kLse}
                                          : std::vector<Buffer>{Buffer::kDq, Buffer::kDk, Buffer::kDv};
  for (const Buffer buffer : outputs) {
    const Segment& segment = scenario.geometry.segment(buffer);
    std::memcpy(allowed.data() + segment.offset, image.data() + segment.offset, segment.bytes);
  }
  EXPECT_EQ(image, allowed) << to_string(scenario.c);
}

TEST(HostileLengthsTest, NoValueCausesAnAccessOutside) {
  constexpr int32_t kLow = std::numeric_limits<int32_t>::min();
  constexpr int32_t kHigh = std::numeric_limits<int32_t>::max();
  const std::vector<std::vector<int32_t>> hostile = {
      {0, kHigh, kHigh, kHigh},
      {kLow, kLow, kHigh, kHigh},
      {kHigh, kLow, kHigh, kLow},
      {-5, 3, 2, 1'000'000},
      {9, 6, 3, 0}};
  for (const Kernel& kernel : all_kernels()) {
    for (size_t k = 0; k < hostile.size(); ++k) {
      const std::string op = kernel.op == Op::kForward ? "op=fwd" : "op=bwd";
      Scenario scenario =
          prepare(
              case_of(
                  op +
                  " dtype=bf16 b=3 h=2 hk=1 sq=40 sk=50 d=32 packed_q=1 packed_k=1 used_q=1 used_k=1 lengths_q=40,3,9 "
                  "lengths_k=1,50,7 mask=causal"
              )
          )
              .scenario;
      const auto overwrite = [&](Buffer buffer, const std::vector<int32_t>& values) {
        const Segment& segment = scenario.geometry.segment(buffer);
        std::memcpy(scenario.image.data() + segment.offset, values.data(), segment.bytes);
      };
      overwrite(Buffer::kCuSeqlensQ, hostile[k]);
      overwrite(Buffer::kCuSeqlensK, hostile[(k + 1) % hostile.size()]);
      overwrite(Buffer::kUsedQ, hostile[(k + 2) % hostile.size()]);
      overwrite(Buffer::kUsedK, hostile[(k + 3) % hostile.size()]);
      const std::unique_ptr<Memory> memory = target().open();
      Execution execution(scenario, kernel.name, *memory);
      if (execution.accepted() == CUFLASH_STATUS_NOT_SUPPORTED) continue;  // a kernel without cu_seqlens
      ASSERT_EQ(execution.run(), CUFLASH_STATUS_SUCCESS) << cuflashGetLastErrorMessage();
      expect_inputs_and_red_zones(scenario, execution.read());
      EXPECT_EQ(execution.check_workspace(), "");
    }
  }
}

}  // namespace
}  // namespace cuflash::test
