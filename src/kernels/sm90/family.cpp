// SPDX-License-Identifier: MIT
#include "kernels/sm90/family.h"

#include <algorithm>

#include "kernels/common/plans.h"
#include "kernels/common/select_instance.h"
#include "kernels/sm90/built_architectures.h"
#include "kernels/sm90/dq_tiles.h"
#include "kernels/sm90/launchers.h"
#include "kernels/sm90/schedule.h"
#include "kernels/sm90/tensor_map.h"
#include "kernels/sm90/tiles.h"

namespace cuflash::sm90 {

BwdWorkspace BwdWorkspace::carve(const BwdArgs& args, const BwdTile& tile, WorkspaceCarver& carver) {
  const Attention& a = args.attention;
  const int64_t tiles = DqTiles::of(a, tile.block_m).count();
  return {
      .delta = carver.take<float>(lse_size(a)),
      .dq_sums = carver.take<float>(tiles * tile.dq_floats()),
      .dq_counters = carver.take<uint32_t>(tiles * tile.kGroups),
      .next_tile = carver.take<uint32_t>(1)};
}

namespace {

static_assert(kFwdTiles.back().head_dim == kMaxHeadDim);

// Machine code of sm_90a runs on sm_90 and nowhere else.
constexpr Support exact_support(int32_t max_head_dim, FeatureSet features) {
  constexpr int32_t kSm = 90;
  return {
      .device = CUFLASH_DEVICE_CUDA,
      .min_sm = kSm,
      .max_sm = kSm,
      .built = kBuiltCode.built,
      .architectures = kBuiltCode.architectures,
      .dtypes = k16BitDTypes,
      .max_head_dim = max_head_dim,
      .features = features};
}

// Tensor copies need rows at multiples of 16 bytes.
constexpr Support kForwardSupport = exact_support(kMaxHeadDim, kForwardFeatures & ~CUFLASH_FEATURE_UNALIGNED);
constexpr Support kBackwardSupport =
    exact_support(kBwdTiles.back().head_dim, kBackwardFeatures & ~CUFLASH_FEATURE_UNALIGNED);

template <const auto& kTable, class Problem>
Refusal refine(const Problem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  constexpr const char* kRule = "is not a multiple of 8: tensor copies are of 16 bytes";
  if (a.head_dim % 8 != 0) return cannot("head_dim", a.head_dim, kRule);
  if (a.head_dim_v % 8 != 0) return cannot("head_dim_v", a.head_dim_v, kRule);
  if (const Refusal refusal = refuse_maps(problem.args); refusal.verdict != Verdict::kAccept) return refusal;
  return refuse_unfitting<kTable>(problem, device);
}

// One block per SM, which stays for all of its tiles.
Plan plan_forward(const ForwardProblem& problem, const Device& device) {
  Plan plan = plan_forward_blocks<kFwdTiles>(problem, device);
  plan.query_blocks = std::min<int64_t>(plan.query_blocks, device.num_sms);
  return plan;
}

Status run_forward(const ForwardProblem& problem, const Plan& plan, const LaunchContext& context) {
  return with_16bit_instance<kFwdTiles>(problem.dtype, plan, [&]<class T, int kHeadDim>() {
    return launch_fwd<T, kHeadDim>(problem.args, plan, context);
  });
}

// Sums of dq are kept in whole tiles. Where sequences are short these are more than the rows are, which does not matter up
// to the first size. Beyond it cp_async, which sums rows, is faster, and beyond the second no workspace is worth it.
constexpr int64_t kSmallSumsBytes = int64_t{64} << 20;
constexpr int64_t kMostSumsBytes = int64_t{4} << 30;

Refusal refine_backward(const BackwardProblem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  if (const Refusal refusal = refine<kBwdTiles>(problem, device); refusal.verdict != Verdict::kAccept) return refusal;
  const BwdTile* tile = tile_on<kBwdTiles>(a, device);
  if (KeySchedule::tiles_of(a, tile->block_n) > KeySchedule::kMaxTiles) {
    return cannot("seqlen_k", a.seqlen_k, "is more blocks of keys, over all heads, than 32 bits count");
  }
  const int64_t tiles = DqTiles::of(a, tile->block_m).count();
  const int64_t tile_bytes = int64_t{4} * tile->dq_floats();
  if (tiles <= kSmallSumsBytes / tile_bytes || tiles <= lse_size(a) / (tile->block_m / 2)) return Refusal();
  constexpr const char* kRule = "is of sequences that are too short: dq is summed in whole tiles of rows";
  return tiles <= kMostSumsBytes / tile_bytes ? declines("batch", a.batch, kRule) : cannot("batch", a.batch, kRule);
}

Plan plan_backward(const BackwardProblem& problem, const Device& device) {
  const Attention& a = problem.args.attention;
  const BwdTile* tile = tile_on<kBwdTiles>(a, device);
  WorkspaceCarver carver;
  BwdWorkspace::carve(problem.args, *tile, carver);
  Plan plan = plan_backward_blocks<kBwdTiles>(a, tile, tile->block_n, tile->block_m, carver.bytes());
  plan.query_blocks = num_tiles(a.batch, a.num_heads, ceil_div(a.seqlen_q, tile->block_m));
  plan.key_blocks = std::min<int64_t>(plan.key_blocks, device.num_sms);
  return plan;
}

Status run_backward(const BackwardProblem& problem, const Plan& plan, const LaunchContext& context) {
  return with_16bit_instance<kBwdTiles>(problem.dtype, plan, [&]<class T, int kHeadDim>() {
    return launch_bwd<T, kHeadDim>(problem.args, plan, context);
  });
}

}  // namespace

constinit const ForwardFamily kForward = {
    "sm90", kForwardSupport, refine<kFwdTiles, ForwardProblem>, plan_forward, run_forward};
constinit const BackwardFamily kBackward = {"sm90", kBackwardSupport, refine_backward, plan_backward, run_backward};

}  // namespace cuflash::sm90
