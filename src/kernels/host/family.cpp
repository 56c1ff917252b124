// SPDX-License-Identifier: MIT
// The host room: the CPU behind the same ABI. It serves every feature with fp64 accumulation, which makes it what all
// other rooms are tested against, and what runs where there is no GPU.
#include "kernels/host/family.h"

#include "kernels/common/select_type.h"
#include "kernels/host/block.h"
#include "kernels/host/kernels.h"
#include "kernels/host/workers.h"

namespace cuflash::host {
namespace {

constexpr Support support_of(FeatureSet features) {
  return {
      .device = CUFLASH_DEVICE_HOST,
      .min_sm = 0,
      .max_sm = 0,
      .built = {},
      .architectures = "",
      .dtypes = CUFLASH_DTYPE_BIT_32F | CUFLASH_DTYPE_BIT_16F | CUFLASH_DTYPE_BIT_16BF,
      .max_head_dim = kMaxHeadDim,
      .features = features};
}

template <class Problem>
Plan plan(const Problem&, const Device&) {
  return {.head_dim = kMaxHeadDim, .block_m = kBlockRows, .block_n = kBlockKeys};
}

Status launch_forward(const ForwardProblem& problem, const Plan&, const LaunchContext& context) {
  if (context.mode == LaunchMode::kPreload) return Status();
  return with_dtype(problem.dtype, [&]<class T>(TypeTag<T>) {
    return forward<T>(problem.args, num_workers(problem.args.attention));
  });
}

Status launch_backward(const BackwardProblem& problem, const Plan&, const LaunchContext& context) {
  if (context.mode == LaunchMode::kPreload) return Status();
  return with_dtype(problem.dtype, [&]<class T>(TypeTag<T>) {
    return backward<T>(problem.args, num_workers(problem.args.attention));
  });
}

}  // namespace

constinit const ForwardFamily kForward = {
    .name = "host",
    .support = support_of(kForwardFeatures),
    .refine = nullptr,
    .plan = plan<ForwardProblem>,
    .launch = launch_forward};

constinit const BackwardFamily kBackward = {
    .name = "host",
    .support = support_of(kBackwardFeatures),
    .refine = nullptr,
    .plan = plan<BackwardProblem>,
    .launch = launch_backward};

}  // namespace cuflash::host
