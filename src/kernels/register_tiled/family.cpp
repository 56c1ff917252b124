// SPDX-License-Identifier: MIT
#include "kernels/register_tiled/family.h"

#include "kernels/common/plans.h"
#include "kernels/register_tiled/built_architectures.h"
#include "kernels/register_tiled/launchers.h"
#include "kernels/register_tiled/tiles.h"

namespace cuflash::register_tiled {

BwdWorkspace BwdWorkspace::carve(const BwdArgs& args, WorkspaceCarver& carver) {
  const int64_t rows = lse_size(args.attention);
  BwdWorkspace workspace = {carver.take<float>(rows), nullptr};
  if (!args.deterministic) workspace.dq_sums = carver.take<float>(rows * args.attention.head_dim);
  return workspace;
}

namespace {

static_assert(kFwdTiles.back().head_dim == kMaxHeadDim && kBwdTiles.back().head_dim == kMaxHeadDim);

constexpr Support kForwardSupport = gpu_support(kBuiltCode, kAllDTypes, kMaxHeadDim, kForwardFeatures);
constexpr Support kBackwardSupport = gpu_support(kBuiltCode, kAllDTypes, kMaxHeadDim, kBackwardFeatures);

Plan plan_backward(const BackwardProblem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  const BwdTile* tile = tile_on<kBwdTiles>(a, device);
  WorkspaceCarver carver;
  BwdWorkspace::carve(problem.args, carver);
  return plan_backward_blocks<kBwdTiles>(a, tile, tile->block_own, tile->block_step, carver.bytes());
}

Status run_forward(const ForwardProblem& problem, const Plan& plan, const LaunchContext& context) {
  return with_head_dim<kFwdTiles>(plan.head_dim, [&]<int kHeadDim>() {
    return launch_fwd<kHeadDim>(problem.args, problem.dtype, plan, context);
  });
}

Status run_backward(const BackwardProblem& problem, const Plan& plan, const LaunchContext& context) {
  return with_head_dim<kBwdTiles>(plan.head_dim, [&]<int kHeadDim>() {
    return launch_bwd<kHeadDim>(problem.args, problem.dtype, plan, context);
  });
}

}  // namespace

constinit const ForwardFamily kForward = {
    "register_tiled",
    kForwardSupport,
    refuse_unfitting<kFwdTiles, ForwardProblem>,
    plan_forward_blocks<kFwdTiles>,
    run_forward};
constinit const BackwardFamily kBackward = {
    "register_tiled", kBackwardSupport, refuse_unfitting<kBwdTiles, BackwardProblem>, plan_backward, run_backward};

}  // namespace cuflash::register_tiled
