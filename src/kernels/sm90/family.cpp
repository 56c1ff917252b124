// SPDX-License-Identifier: MIT
#include "kernels/sm90/family.h"

#include <algorithm>

#include "kernels/common/plans.h"
#include "kernels/common/select_instance.h"
#include "kernels/sm90/built_architectures.h"
#include "kernels/sm90/launchers.h"
#include "kernels/sm90/tensor_map.h"
#include "kernels/sm90/tiles.h"

namespace cuflash::sm90 {
namespace {

static_assert(kFwdTiles.back().head_dim == kMaxHeadDim);

constexpr int32_t kSm = 90;

// Machine code of sm_90a runs on sm_90 and nowhere else. Tensor copies need rows at multiples of 16 bytes.
constexpr Support kForwardSupport = {
    .device = CUFLASH_DEVICE_CUDA,
    .min_sm = kSm,
    .max_sm = kSm,
    .built = kBuiltCode.built,
    .architectures = kBuiltCode.architectures,
    .dtypes = k16BitDTypes,
    .max_head_dim = kMaxHeadDim,
    .features = kForwardFeatures & ~CUFLASH_FEATURE_UNALIGNED};

Refusal refine(const ForwardProblem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  constexpr const char* kRule = "is not a multiple of 8: tensor copies are of 16 bytes";
  if (a.head_dim % 8 != 0) return cannot("head_dim", a.head_dim, kRule);
  if (a.head_dim_v % 8 != 0) return cannot("head_dim_v", a.head_dim_v, kRule);
  if (const Refusal refusal = refuse_maps(problem.args); refusal.verdict != Verdict::kAccept) return refusal;
  return refuse_unfitting<kFwdTiles>(problem, device);
}

// One block per SM, which stays for all of its tiles.
Plan plan(const ForwardProblem& problem, const Device& device) {
  Plan plan = plan_forward_blocks<kFwdTiles>(problem, device);
  plan.query_blocks = std::min<int64_t>(plan.query_blocks, device.num_sms);
  return plan;
}

Status run(const ForwardProblem& problem, const Plan& plan, const LaunchContext& context) {
  return with_16bit_instance<kFwdTiles>(problem.dtype, plan, [&]<class T, int kHeadDim>() {
    return launch_fwd<T, kHeadDim>(problem.args, plan, context);
  });
}

}  // namespace

constinit const ForwardFamily kForward = {"sm90", kForwardSupport, refine, plan, run};

}  // namespace cuflash::sm90
