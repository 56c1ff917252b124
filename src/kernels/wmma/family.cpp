// SPDX-License-Identifier: MIT
#include "kernels/wmma/family.h"

#include "kernels/common/plans.h"
#include "kernels/common/select_instance.h"
#include "kernels/wmma/built_architectures.h"
#include "kernels/wmma/launchers.h"
#include "kernels/wmma/tiles.h"

namespace cuflash::wmma {
namespace {

static_assert(kFwdTiles.back().head_dim == kMaxHeadDim && kBwdTiles.back().head_dim == kMaxHeadDim);

constexpr Support kForwardSupport = gpu_support(kBuiltCode, k16BitDTypes, kMaxHeadDim, kForwardFeatures);
constexpr Support kBackwardSupport = gpu_support(kBuiltCode, k16BitDTypes, kMaxHeadDim, kBackwardFeatures);

template <const auto& kTable, class Problem>
Refusal refine(const Problem& problem, const Device& device) {
  if (problem.dtype == CUFLASH_R_16BF && device.sm < 80) {
    return cannot("dtype", "bf16", "needs fragments of sm_80 or later");
  }
  return refuse_unfitting<kTable>(problem, device);
}

Plan plan_backward(const BackwardProblem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  const BwdTile* tile = tile_on<kBwdTiles>(a, device);
  WorkspaceCarver carver;
  BwdWorkspace::carve(problem.args, dq_pitch(a.head_dim), carver);
  return plan_backward_blocks<kBwdTiles>(a, tile, tile->block_own, tile->block_step, carver.bytes());
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
    "wmma", kForwardSupport, refine<kFwdTiles, ForwardProblem>, plan_forward_blocks<kFwdTiles>, run_forward};
constinit const BackwardFamily kBackward = {
    "wmma", kBackwardSupport, refine<kBwdTiles, BackwardProblem>, plan_backward, run_backward};

}  // namespace cuflash::wmma
