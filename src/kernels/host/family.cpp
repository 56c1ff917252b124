// SPDX-License-Identifier: MIT
// The host room: the CPU behind the same ABI. It serves every feature with fp64 accumulation, which makes it what all
// other rooms are tested against, and what runs where there is no GPU.
#include "kernels/host/family.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

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

template <class T>
Status compute(const FwdArgs& args) {
  forward<T>(args, num_workers(args.attention));
  return Status();
}

template <class T>
Status compute(const BwdArgs& args) {
  backward<T>(args, num_workers(args.attention));
  return Status();
}

template <class Problem>
Status launch(const Problem& problem, const Plan&, const LaunchContext& context) {
  if (context.mode == LaunchMode::kPreload) return Status();
  switch (problem.dtype) {
    case CUFLASH_R_32F: return compute<float>(problem.args);
    case CUFLASH_R_16F: return compute<__half>(problem.args);
    case CUFLASH_R_16BF: return compute<__nv_bfloat16>(problem.args);
    default: return fail(CUFLASH_STATUS_INTERNAL_ERROR, "host: dtype (%d) is not served", problem.dtype);
  }
}

}  // namespace

constinit const ForwardFamily kForward = {
    .name = "host",
    .support = support_of(kForwardFeatures),
    .refine = nullptr,
    .plan = plan<ForwardProblem>,
    .launch = launch<ForwardProblem>};

constinit const BackwardFamily kBackward = {
    .name = "host",
    .support = support_of(kBackwardFeatures),
    .refine = nullptr,
    .plan = plan<BackwardProblem>,
    .launch = launch<BackwardProblem>};

}  // namespace cuflash::host
