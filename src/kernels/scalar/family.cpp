// SPDX-License-Identifier: MIT
#include "kernels/scalar/family.h"

#include "kernels/common/select_type.h"
#include "kernels/common/sequence.h"
#include "kernels/common/tile_coord.h"
#include "kernels/common/tile_table.h"
#include "kernels/scalar/built_architectures.h"
#include "kernels/scalar/launchers.h"
#include "kernels/scalar/tiles.h"

namespace cuflash::scalar {

BwdWorkspace BwdWorkspace::carve(const Attention& attention, WorkspaceCarver& carver) {
  return {carver.take<float>(lse_size(attention))};
}

namespace {

static_assert(kTiles.back().head_dim == kMaxHeadDim);  // the room serves all that the library accepts

constexpr Support kForwardSupport = gpu_support(kBuiltCode, kAllDTypes, kMaxHeadDim, kForwardFeatures);
constexpr Support kBackwardSupport = gpu_support(kBuiltCode, kAllDTypes, kMaxHeadDim, kBackwardFeatures);

Plan plan_queries(const Attention& a) {
  const Tile& tile = tile_for(kTiles, wider_head_dim(a));
  return {
      .head_dim = tile.head_dim,
      .block_m = tile.block_m,
      .block_n = tile.block_n,
      .query_blocks = num_tiles(a.batch, a.num_heads, ceil_div(a.seqlen_q, tile.block_m))};
}

Plan plan_forward(const ForwardProblem& problem, const Device&) { return plan_queries(problem.args.attention); }

Plan plan_backward(const BackwardProblem& problem, const Device&) {
  const Attention& a = problem.args.attention;
  Plan plan = plan_queries(a);
  plan.key_blocks = num_tiles(a.batch, a.num_heads_k, ceil_div(a.seqlen_k, plan.block_m));
  WorkspaceCarver carver;
  BwdWorkspace::carve(a, carver);
  plan.workspace_bytes = carver.bytes();
  return plan;
}

Status run_forward(const ForwardProblem& problem, const Plan& plan, const LaunchContext& context) {
  return with_dtype(problem.dtype, [&]<class T>(TypeTag<T>) {
    return with_head_dim<kTiles>(plan.head_dim, [&]<int kHeadDim>() {
      return launch_fwd<T, kHeadDim>(problem.args, plan, context);
    });
  });
}

Status run_backward(const BackwardProblem& problem, const Plan& plan, const LaunchContext& context) {
  return with_dtype(problem.dtype, [&]<class T>(TypeTag<T>) {
    return with_head_dim<kTiles>(plan.head_dim, [&]<int kHeadDim>() {
      return launch_bwd<T, kHeadDim>(problem.args, plan, context);
    });
  });
}

}  // namespace

constinit const ForwardFamily kForward = {"scalar", kForwardSupport, nullptr, plan_forward, run_forward};
constinit const BackwardFamily kBackward = {"scalar", kBackwardSupport, nullptr, plan_backward, run_backward};

}  // namespace cuflash::scalar
