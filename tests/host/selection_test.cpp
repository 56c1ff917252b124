// SPDX-License-Identifier: MIT
// How a kernel is selected: the first that accepts, the forced one, or a refusal with every kernel's reason.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "dispatch_cases.h"
#include "registry.h"

namespace cuflash::test {
namespace {

template <class Problem>
class SelectionTest : public ::testing::Test {};

using BothProblems = ::testing::Types<ForwardProblem, BackwardProblem>;
TYPED_TEST_SUITE(SelectionTest, BothProblems);

template <class Problem, class Body>
void for_each_problem(Body body) {
  for (const NamedDType& dtype : kDispatchDTypes) {
    for (const auto& variant : dispatch_variants<ParamsOf<Problem>>()) {
      for (const int32_t head_dim : {1, 8, 16, 32, 40, 64, 72, 80, 96, 128, 192, 255, 256}) {
        for (const int32_t sm : kDispatchSms) {
          body(dispatch_problem<Problem>(CUFLASH_DEVICE_CUDA, dtype.value, head_dim, variant), gpu(sm));
        }
        body(dispatch_problem<Problem>(CUFLASH_DEVICE_HOST, dtype.value, head_dim, variant), Device());
      }
    }
  }
}

// The feature that a variant is named after is the one that the problem has.
TYPED_TEST(SelectionTest, VariantsHaveTheirFeature) {
  for (const auto& variant : dispatch_variants<ParamsOf<TypeParam>>()) {
    const std::string name = variant.name;
    const FeatureSet features = dispatch_problem<TypeParam>(CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, 128, variant).features;
    bool named = name == "plain" || name == "all";
    for (FeatureSet bit = 1; bit <= CUFLASH_FEATURE_DETERMINISTIC; bit *= 2) {
      named |= name == feature_name(bit) && (features & bit) != 0;
    }
    EXPECT_TRUE(named) << name << " has features " << features;
    if (name == "plain") {
      EXPECT_EQ(features, 0);
    }
  }
}

TYPED_TEST(SelectionTest, SelectTakesTheFirstThatAccepts) {
  int selected = 0, refused = 0;
  for_each_problem<TypeParam>([&](const TypeParam& problem, const Device& device) {
    const KernelFamily<TypeParam>* expected = nullptr;
    for (const KernelFamily<TypeParam>* family : families<TypeParam>()) {
      if (expected == nullptr && consider(*family, problem, device).verdict == Verdict::kAccept) expected = family;
    }
    Selection<TypeParam> selection;
    const Status status = select(problem, device, &selection);
    ASSERT_EQ(status.ok(), expected != nullptr);
    ASSERT_EQ(selection.family, expected);
    if (expected == nullptr) {
      ASSERT_EQ(status.code(), CUFLASH_STATUS_NOT_SUPPORTED);
    }
    ++(expected != nullptr ? selected : refused);
  });
  EXPECT_GT(selected, 0);
  EXPECT_GT(refused, 0);
}

TYPED_TEST(SelectionTest, AForcedFamilyRunsOrSaysWhyNot) {
  int forced = 0, refused = 0;
  for (const KernelFamily<TypeParam>* family : families<TypeParam>()) {
    for_each_problem<TypeParam>([&](TypeParam problem, const Device& device) {
      problem.kernel = family->name;
      const bool can = consider(*family, problem, device).verdict != Verdict::kCannot;
      Selection<TypeParam> selection;
      const Status status = select(problem, device, &selection);
      if (can) {
        ASSERT_TRUE(status.ok());
        ASSERT_EQ(selection.family, family);
      } else {
        ASSERT_EQ(status.code(), CUFLASH_STATUS_NOT_SUPPORTED);
        const std::string start = std::string("forced kernel ") + family->name + " cannot serve this call: ";
        ASSERT_EQ(std::string(cuflashGetLastErrorMessage()).rfind(start, 0), 0u) << cuflashGetLastErrorMessage();
      }
      ++(can ? forced : refused);
    });
  }
  EXPECT_GT(forced, 0);
  EXPECT_GT(refused, 0);
}

TYPED_TEST(SelectionTest, ARefusalListsEveryFamilyWithItsReason) {
  const auto plain = dispatch_variants<ParamsOf<TypeParam>>().front();
  const auto problem = dispatch_problem<TypeParam>(CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, 64, plain);
  Selection<TypeParam> selection;
  EXPECT_EQ(select(problem, gpu(60), &selection).code(), CUFLASH_STATUS_NOT_SUPPORTED);
  const std::string message = cuflashGetLastErrorMessage();
  const std::string start = std::string("no kernel serves this ") + Api<ParamsOf<TypeParam>>::kName + " call: ";
  EXPECT_EQ(message.rfind(start, 0), 0u) << message;
  for (const KernelFamily<TypeParam>* family : families<TypeParam>()) {
    EXPECT_NE(message.find(std::string(family->name) + ": device "), std::string::npos) << message;
  }
  EXPECT_NE(message.find("; scalar: device sm (60) is older than this kernel needs"), std::string::npos) << message;
}

// Tiles are chosen by the shared memory of the GPU; where none fits, the next kernel serves, and a forced one says why.
TEST(SharedMemoryTest, WhereNoTileFitsTheNextKernelServes) {
  const auto plain = dispatch_variants<cuflashForwardParams_t>().front();
  for (const int32_t sm : {75, 86, 89, 120}) {
    for (const int32_t head_dim : {128, 129, 256}) {
      const auto problem = dispatch_problem<ForwardProblem>(CUFLASH_DEVICE_CUDA, CUFLASH_R_32F, head_dim, plain);
      EXPECT_STREQ(first_that_accepts(problem, gpu(sm)), head_dim <= 128 ? "register_tiled" : "scalar")
          << "sm_" << sm << ", head_dim " << head_dim;
    }
  }
  Device small = gpu(90);
  small.max_shared_bytes = 99 * 1024;
  const Variant<cuflashForwardParams_t> wide_v = {"wide v", [](cuflashForwardParams_t& p) { p.head_dim_v = 192; }};
  auto problem = dispatch_problem<ForwardProblem>(CUFLASH_DEVICE_CUDA, CUFLASH_R_32F, 64, wide_v);
  problem.kernel = "register_tiled";
  Selection<ForwardProblem> selection;
  EXPECT_EQ(select(problem, small, &selection).code(), CUFLASH_STATUS_NOT_SUPPORTED);
  EXPECT_STREQ(
      cuflashGetLastErrorMessage(),
      "forced kernel register_tiled cannot serve this call: head_dim_v (192) needs tiles that do not fit into this "
      "GPU's "
      "shared memory"
  );
  problem.kernel = nullptr;
  ASSERT_TRUE(select(problem, small, &selection).ok());
  EXPECT_STREQ(selection.family->name, "scalar");
  ASSERT_TRUE(select(problem, gpu(90), &selection).ok());
  EXPECT_STREQ(selection.family->name, "register_tiled");
}

// A family of any support, to ask consider() about.
template <class Problem>
KernelFamily<Problem> family_with(const Support& support, Refusal (*refine)(const Problem&, const Device&) = nullptr) {
  return {"test", support, refine, nullptr, nullptr};
}

constexpr BuiltArch kHopperCode[] = {{90, BuiltArch::kExact}};
constexpr Support kHopperSupport = {
    .device = CUFLASH_DEVICE_CUDA,
    .min_sm = 90,
    .max_sm = 100,
    .built = kHopperCode,
    .architectures = "sm_90a",
    .dtypes = CUFLASH_DTYPE_BIT_16F,
    .max_head_dim = 128,
    .features = CUFLASH_FEATURE_CAUSAL | CUFLASH_FEATURE_HEAD_DIM_V};

std::string reason(const Refusal& refusal) {
  const std::string value = refusal.value_text != nullptr ? refusal.value_text : std::to_string(refusal.value);
  return std::string(refusal.field) + " (" + value + ") " + refusal.rule;
}

TYPED_TEST(SelectionTest, EveryLimitOfASupportRefuses) {
  using Params = ParamsOf<TypeParam>;
  const auto family = family_with<TypeParam>(kHopperSupport);
  const auto ask =
      [&](cuflashDevice_t where, cuflashDataType_t dtype, int32_t head_dim, void (*apply)(Params&), int32_t sm) {
        return consider(family, dispatch_problem<TypeParam>(where, dtype, head_dim, {"", apply}), gpu(sm));
      };
  const auto plain = [](Params&) {};
  const auto expect_cannot = [](const Refusal& refusal, const std::string& text) {
    EXPECT_EQ(refusal.verdict, Verdict::kCannot) << text;
    EXPECT_EQ(reason(refusal), text);
  };
  EXPECT_EQ(ask(CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, 128, plain, 90).verdict, Verdict::kAccept);
  EXPECT_EQ(
      ask(
          CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, 128, [](Params& p) { p.mask = CUFLASH_MASK_CAUSAL; }, 90
      )
          .verdict,
      Verdict::kAccept
  );
  expect_cannot(
      ask(CUFLASH_DEVICE_HOST, CUFLASH_R_16F, 128, plain, 90),
      "device (CUFLASH_DEVICE_HOST) needs host memory: this is a GPU kernel"
  );
  expect_cannot(
      ask(CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, 128, plain, 89), "device sm (89) is older than this kernel needs"
  );
  expect_cannot(
      ask(CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, 128, plain, 120),
      "device sm (120) is newer than this kernel is written for"
  );
  expect_cannot(
      ask(CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, 128, plain, 100),
      "device sm (100) is not among the architectures that this binary holds code for"
  );
  expect_cannot(ask(CUFLASH_DEVICE_CUDA, CUFLASH_R_32F, 128, plain, 90), "dtype (fp32) is not served");
  expect_cannot(
      ask(CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, 129, plain, 90), "head_dim (129) is above this kernel's largest"
  );
  expect_cannot(
      ask(
          CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, 64, [](Params& p) { p.head_dim_v = 136; }, 90
      ),
      "head_dim_v (136) is above this kernel's largest"
  );
  expect_cannot(ask(CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, 100, plain, 90), "feature (unaligned) is not served");
  expect_cannot(
      ask(
          CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, 64, [](Params& p) { p.softcap = 1.0f; }, 90
      ),
      "feature (softcap) is not served"
  );
}

TYPED_TEST(SelectionTest, RefineIsAskedAfterSupport) {
  const auto family = family_with<TypeParam>(kHopperSupport, [](const TypeParam& problem, const Device&) {
    return problem.args.attention.head_dim < 64
               ? declines("head_dim", problem.args.attention.head_dim, "is faster elsewhere")
               : Refusal();
  });
  const auto plain = dispatch_variants<ParamsOf<TypeParam>>().front();
  const auto verdict = [&](int32_t head_dim, int32_t sm) {
    return consider(family, dispatch_problem<TypeParam>(CUFLASH_DEVICE_CUDA, CUFLASH_R_16F, head_dim, plain), gpu(sm))
        .verdict;
  };
  EXPECT_EQ(verdict(64, 90), Verdict::kAccept);
  EXPECT_EQ(verdict(32, 90), Verdict::kDecline);
  EXPECT_EQ(verdict(32, 80), Verdict::kCannot);
}

TEST(BuiltArchTest, RunsOn) {
  struct Case {
    BuiltArch code;
    std::set<int32_t> runs_on;
  };
  const Case cases[] = {
      {{75, BuiltArch::kReal}, {75}},
      {{80, BuiltArch::kReal}, {80, 86, 87, 89}},
      {{86, BuiltArch::kReal}, {86, 87, 89}},
      {{89, BuiltArch::kReal}, {89}},
      {{90, BuiltArch::kReal}, {90}},
      {{100, BuiltArch::kReal}, {100, 103}},
      {{120, BuiltArch::kReal}, {120, 121}},
      {{90, BuiltArch::kExact}, {90}},
      {{100, BuiltArch::kExact}, {100}},
      {{75, BuiltArch::kPtx}, {75, 80, 86, 87, 89, 90, 100, 103, 120, 121}},
      {{90, BuiltArch::kPtx}, {90, 100, 103, 120, 121}},
      {{120, BuiltArch::kPtx}, {120, 121}},
  };
  for (const Case& c : cases) {
    for (const int32_t sm : {60, 70, 75, 80, 86, 87, 89, 90, 100, 103, 120, 121}) {
      EXPECT_EQ(c.code.runs_on(sm), c.runs_on.count(sm) == 1)
          << "sm_" << c.code.sm << " kind " << c.code.kind << " on " << sm;
    }
  }
}

// The public list of kernels is the registry.
TEST(KernelInfoTest, ListsTheRegistry) {
  int32_t index = 0;
  const auto check = [&](const auto& family, cuflashOperation_t operation) {
    cuflashKernelInfo_t info{};
    info.struct_size = sizeof(info);
    ASSERT_EQ(cuflashGetKernelInfo(index++, &info), CUFLASH_STATUS_SUCCESS);
    EXPECT_EQ(info.struct_size, sizeof(info));
    EXPECT_STREQ(info.name, family.name);
    EXPECT_STREQ(info.architectures, family.support.architectures);
    EXPECT_EQ(info.operation, operation);
    EXPECT_EQ(info.device, family.support.device);
    EXPECT_EQ(info.min_sm, family.support.min_sm);
    EXPECT_EQ(info.max_sm, family.support.max_sm);
    EXPECT_EQ(info.dtypes, family.support.dtypes);
    EXPECT_EQ(info.features, family.support.features);
    EXPECT_EQ(info.max_head_dim, family.support.max_head_dim);
    EXPECT_EQ(info.reserved0, 0);
  };
  for (const ForwardFamily* family : families<ForwardProblem>()) check(*family, CUFLASH_OP_FORWARD);
  for (const BackwardFamily* family : families<BackwardProblem>()) check(*family, CUFLASH_OP_BACKWARD);
  EXPECT_EQ(index, cuflashGetKernelCount());
}

TYPED_TEST(SelectionTest, NamesAreUnique) {
  std::set<std::string> names;
  for (const KernelFamily<TypeParam>* family : families<TypeParam>()) {
    EXPECT_TRUE(names.insert(family->name).second) << family->name;
    EXPECT_TRUE(check_kernel_name("kernel", family->name).ok());
  }
}

// Some kernel serves every valid call on every GPU that the toolkit targets, and on the host.
TYPED_TEST(SelectionTest, EveryProblemIsServedFromSm75On) {
  for_each_problem<TypeParam>([](const TypeParam& problem, const Device& device) {
    if (problem.device == CUFLASH_DEVICE_CUDA && device.sm < 75) return;
    ASSERT_STRNE(first_that_accepts(problem, device), "none");
  });
}

}  // namespace
}  // namespace cuflash::test
