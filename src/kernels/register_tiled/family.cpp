// SPDX-License-Identifier: MIT
#include "kernels/register_tiled/family.h"

#include <algorithm>

#include "kernels/common/select_type.h"
#include "kernels/common/sequence.h"
#include "kernels/common/tile_coord.h"
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

constexpr DTypeSet kDTypes = CUFLASH_DTYPE_BIT_32F | CUFLASH_DTYPE_BIT_16F | CUFLASH_DTYPE_BIT_16BF;

constexpr Support support(FeatureSet features) {
  return {
      .device = CUFLASH_DEVICE_CUDA,
      .min_sm = kMinSm,
      .max_sm = 999,
      .built = kBuiltArchitectures,
      .architectures = kArchitectures,
      .dtypes = kDTypes,
      .max_head_dim = kMaxHeadDim,
      .features = features};
}

int32_t wider_head_dim(const Attention& a) { return std::max(a.head_dim, a.head_dim_v); }

template <const auto& kTable>
const auto* tile_on(const Attention& a, const Device& device) {
  return fitting_tile(kTable, wider_head_dim(a), static_cast<size_t>(device.max_shared_bytes));
}

template <const auto& kTable, class Problem>
Refusal refine(const Problem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  if (tile_on<kTable>(a, device) != nullptr) return {};
  return cannot(
      a.head_dim_v > a.head_dim ? "head_dim_v" : "head_dim",
      wider_head_dim(a),
      "needs tiles that do not fit into this GPU's shared memory"
  );
}

Plan plan_forward(const ForwardProblem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  const FwdTile* tile = tile_on<kFwdTiles>(a, device);
  return {
      .head_dim = tile->head_dim,
      .block_m = tile->block_m,
      .block_n = tile->block_n,
      .tile_row = static_cast<int32_t>(tile - kFwdTiles.data()),
      .query_blocks = num_tiles(a.batch, a.num_heads, ceil_div(a.seqlen_q, tile->block_m))};
}

Plan plan_backward(const BackwardProblem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  const BwdTile* tile = tile_on<kBwdTiles>(a, device);
  WorkspaceCarver carver;
  BwdWorkspace::carve(problem.args, carver);
  return {
      .workspace_bytes = carver.bytes(),
      .head_dim = tile->head_dim,
      .block_m = tile->block_step,
      .block_n = tile->block_own,
      .tile_row = static_cast<int32_t>(tile - kBwdTiles.data()),
      .query_blocks = num_tiles(a.batch, a.num_heads, ceil_div(a.seqlen_q, tile->block_own)),
      .key_blocks = num_tiles(a.batch, a.num_heads_k, ceil_div(a.seqlen_k, tile->block_own))};
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
    "register_tiled", support(kForwardFeatures), refine<kFwdTiles, ForwardProblem>, plan_forward, run_forward};
constinit const BackwardFamily kBackward = {
    "register_tiled", support(kBackwardFeatures), refine<kBwdTiles, BackwardProblem>, plan_backward, run_backward};

}  // namespace cuflash::register_tiled
