// SPDX-License-Identifier: MIT
#include "kernels/cp_async/family.h"

#include "kernels/common/plans.h"
#include "kernels/common/select_instance.h"
#include "kernels/cp_async/built_architectures.h"
#include "kernels/cp_async/launchers.h"
#include "kernels/cp_async/tiles.h"

namespace cuflash::cp_async {
namespace {

static_assert(kFwdTiles.back().head_dim == kMaxHeadDim && kBwdTiles.back().head_dim == kMaxHeadDim);

// Copies are of 16 bytes.
constexpr FeatureSet kNotServed = CUFLASH_FEATURE_UNALIGNED;
constexpr Support kForwardSupport = gpu_support(kBuiltCode, k16BitDTypes, kMaxHeadDim, kForwardFeatures & ~kNotServed);
constexpr Support kBackwardSupport =
    gpu_support(kBuiltCode, k16BitDTypes, kMaxHeadDim, kBackwardFeatures & ~kNotServed);

// Copies read whole pairs of elements: cp.async counts in multiples of 4 bytes.
template <const auto& kTable, class Problem>
Refusal refine(const Problem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  constexpr const char* kRule = "is odd: copies are of whole pairs of elements";
  if (a.head_dim % 2 != 0) return cannot("head_dim", a.head_dim, kRule);
  if (a.head_dim_v % 2 != 0) return cannot("head_dim_v", a.head_dim_v, kRule);
  return refuse_unfitting<kTable>(problem, device);
}

Plan plan_backward(const BackwardProblem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  const BwdTile* tile = tile_on<kBwdTiles>(a, device);
  WorkspaceCarver carver;
  BwdWorkspace::carve(problem.args, dq_pitch(a.head_dim), carver);
  return plan_backward_blocks<kBwdTiles>(a, tile, tile->block_n, tile->block_m, carver.bytes());
}

Status run_forward(const ForwardProblem& problem, const Plan& plan, const LaunchContext& context) {
  return with_16bit_instance<kFwdTiles>(problem.dtype, plan, [&]<class T, int kHeadDim>() {
    return launch_fwd<T, kHeadDim>(problem.args, plan, context);
  });
}

Status run_backward(const BackwardProblem& problem, const Plan& plan, const LaunchContext& context) {
  return with_16bit_instance<kBwdTiles>(problem.dtype, plan, [&]<class T, int kHeadDim>() {
    return launch_bwd<T, kHeadDim>(problem.args, plan, context);
  });
}

}  // namespace

constinit const ForwardFamily kForward = {
    "cp_async", kForwardSupport, refine<kFwdTiles, ForwardProblem>, plan_forward_blocks<kFwdTiles>, run_forward};
constinit const BackwardFamily kBackward = {
    "cp_async", kBackwardSupport, refine<kBwdTiles, BackwardProblem>, plan_backward, run_backward};

}  // namespace cuflash::cp_async
