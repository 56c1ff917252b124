// SPDX-License-Identifier: MIT
#include "registry.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "env.h"
#include "kernels/built_rooms.h"
#include "kernels/cp_async/family.h"
#include "kernels/host/family.h"
#include "kernels/register_tiled/family.h"
#include "kernels/scalar/family.h"
#include "kernels/sm90/family.h"
#include "kernels/wmma/family.h"

namespace cuflash {
namespace {

// What runs where: order is preference, the first family that accepts a problem runs it. This is the only such list;
// dispatch, size queries, explain, tests, benchmarks and docs/dispatch.md read it. A room that this build has no code for
// is not listed: what stands in its place is null.
// clang-format off
constexpr const ForwardFamily* kForwardRows[] = {
    built::sm90()           ? &sm90::kForward           : nullptr,  // sm_90 alone    fp16 bf16   head_dim % 8, 16-byte aligned
    built::cp_async()       ? &cp_async::kForward       : nullptr,  // sm_80 up       fp16 bf16   even head_dim, 16-byte aligned
    built::wmma()           ? &wmma::kForward           : nullptr,  // sm_70 up       fp16 bf16   bf16 from sm_80 up
    built::register_tiled() ? &register_tiled::kForward : nullptr,  // sm_70 up  fp32 fp16 bf16   if shared memory allows
    built::scalar()         ? &scalar::kForward         : nullptr,  // sm_70 up  fp32 fp16 bf16
    &host::kForward,                                              // no GPU    fp32 fp16 bf16   for device = HOST
};

constexpr const BackwardFamily* kBackwardRows[] = {
    built::sm90()           ? &sm90::kBackward           : nullptr,  // as forward, but not many short sequences
    built::cp_async()       ? &cp_async::kBackward       : nullptr,
    built::wmma()           ? &wmma::kBackward           : nullptr,
    built::register_tiled() ? &register_tiled::kBackward : nullptr,
    built::scalar()         ? &scalar::kBackward         : nullptr,
    &host::kBackward,
};
// clang-format on

// The rows that are not null.
template <const auto& kRows>
constexpr auto listed() {
  constexpr auto kIsListed = [](const auto* family) { return family != nullptr; };
  constexpr auto kCount = std::count_if(std::begin(kRows), std::end(kRows), kIsListed);
  std::array<std::decay_t<decltype(kRows[0])>, kCount> families{};
  std::copy_if(std::begin(kRows), std::end(kRows), families.begin(), kIsListed);
  return families;
}

constexpr auto kForwardFamilies = listed<kForwardRows>();
constexpr auto kBackwardFamilies = listed<kBackwardRows>();

Refusal consider_support(const Support& support, const Call& call, const Attention& a, const Device& device) {
  if (support.device != call.device) {
    return call.device == CUFLASH_DEVICE_HOST
               ? cannot("device", "CUFLASH_DEVICE_HOST", "needs host memory: this is a GPU kernel")
               : cannot("device", "CUFLASH_DEVICE_CUDA", "needs a GPU: this kernel runs on the host");
  }
  if (support.device == CUFLASH_DEVICE_CUDA) {
    if (device.sm < support.min_sm) return cannot("device sm", device.sm, "is older than this kernel needs");
    if (device.sm > support.max_sm) return cannot("device sm", device.sm, "is newer than this kernel is written for");
    const bool has_code =
        std::any_of(support.built.begin(), support.built.end(), [&](BuiltArch b) { return b.runs_on(device.sm); });
    if (!has_code)
      return cannot("device sm", device.sm, "is not among the architectures that this binary holds code for");
  }
  if ((support.dtypes & dtype_bit(call.dtype)) == 0) return cannot("dtype", dtype_name(call.dtype), "is not served");
  if (a.head_dim > support.max_head_dim) return cannot("head_dim", a.head_dim, "is above this kernel's largest");
  if (a.head_dim_v > support.max_head_dim) return cannot("head_dim_v", a.head_dim_v, "is above this kernel's largest");
  if (const FeatureSet missing = call.features & ~support.features; missing != 0) {
    return cannot("feature", feature_name(missing & -missing), "is not served");
  }
  return Refusal();
}

void print_reason(TextWriter& out, const Refusal& refusal) {
  if (refusal.value_text != nullptr) {
    out.print("%s (%s) %s", refusal.field, refusal.value_text, refusal.rule);
  } else {
    out.print("%s (%lld) %s", refusal.field, static_cast<long long>(refusal.value), refusal.rule);
  }
}

const char* operation_name(cuflashOperation_t operation) {
  return operation == CUFLASH_OP_FORWARD ? "forward" : "backward";
}

// "name: field (value) rule" for all families that did not accept.
template <class Problem>
void print_refusals(TextWriter& out, const Problem& problem, const Device& device, const char* separator) {
  const char* before = "";
  for (const KernelFamily<Problem>* family : families<Problem>()) {
    const Refusal refusal = consider(*family, problem, device);
    if (refusal.verdict == Verdict::kAccept) continue;
    out.print("%s%s: ", before, family->name);
    print_reason(out, refusal);
    before = separator;
  }
}

template <class Problem>
const KernelFamily<Problem>* find(const char* name) {
  for (const KernelFamily<Problem>* family : families<Problem>()) {
    if (std::strcmp(family->name, name) == 0) return family;
  }
  return nullptr;
}

const char* forced_kernel(const Call& call) { return call.kernel != nullptr ? call.kernel : environment().kernel; }

template <class Problem>
Status find_family(const Problem& problem, const Device& device, const KernelFamily<Problem>** found) {
  if (const char* forced = forced_kernel(problem)) {
    CUFLASH_TRY(check_kernel_name(problem.kernel != nullptr ? "kernel" : "CUFLASH_KERNEL", forced));
    const KernelFamily<Problem>* family = find<Problem>(forced);
    if (family == nullptr) {
      return fail(
          CUFLASH_STATUS_NOT_SUPPORTED, "forced kernel %s has no %s", forced, operation_name(Problem::kOperation)
      );
    }
    if (const Refusal refusal = consider(*family, problem, device); refusal.verdict == Verdict::kCannot) {
      char reason[256];
      TextWriter out(reason, sizeof(reason));
      print_reason(out, refusal);
      return fail(CUFLASH_STATUS_NOT_SUPPORTED, "forced kernel %s cannot serve this call: %s", forced, reason);
    }
    *found = family;
    return Status();
  }
  for (const KernelFamily<Problem>* family : families<Problem>()) {
    if (consider(*family, problem, device).verdict == Verdict::kAccept) {
      *found = family;
      return Status();
    }
  }
  char reasons[1536];
  TextWriter out(reasons, sizeof(reasons));
  print_refusals(out, problem, device, "; ");
  return fail(
      CUFLASH_STATUS_NOT_SUPPORTED, "no kernel serves this %s call: %s", operation_name(Problem::kOperation), reasons
  );
}

void print_problem(TextWriter& out, cuflashOperation_t operation, const Call& call, const Attention& a) {
  out.print(
      "%s %s batch=%d num_heads=%d num_heads_k=%d seqlen_q=%d seqlen_k=%d head_dim=%d head_dim_v=%d features=",
      operation_name(operation),
      dtype_name(call.dtype),
      a.batch,
      a.num_heads,
      a.num_heads_k,
      a.seqlen_q,
      a.seqlen_k,
      a.head_dim,
      a.head_dim_v
  );
  const char* before = "";
  for (FeatureSet bit = 1; bit <= CUFLASH_FEATURE_DETERMINISTIC; bit *= 2) {
    if ((call.features & bit) == 0) continue;
    out.print("%s%s", before, feature_name(bit));
    before = ",";
  }
  out.print("%s\n", call.features == 0 ? "none" : "");
}

void print_device(TextWriter& out, const Call& call, const Device& device) {
  if (call.device == CUFLASH_DEVICE_HOST) {
    out.print("device: host\n");
  } else {
    out.print("device: %d, sm_%d, %d SMs\n", device.ordinal, device.sm, device.num_sms);
  }
}

void print_plan(TextWriter& out, const Plan& plan) {
  out.print("chosen: capacity head_dim %d, tile %d x %d", plan.head_dim, plan.block_m, plan.block_n);
  if (plan.query_blocks > 0) out.print(", %lld query blocks", static_cast<long long>(plan.query_blocks));
  if (plan.key_blocks > 0) out.print(", %lld key blocks", static_cast<long long>(plan.key_blocks));
  out.print(", workspace %zu bytes", plan.workspace_bytes);
}

template <class Problem>
void log_dispatch(const Problem& problem, const Device& device) {
  char text[4096];
  TextWriter out(text, sizeof(text));
  explain(problem, device, out);
  std::fprintf(stderr, "cuflash: %s", text);
}

}  // namespace

template <>
std::span<const ForwardFamily* const> families<ForwardProblem>() {
  return kForwardFamilies;
}

template <>
std::span<const BackwardFamily* const> families<BackwardProblem>() {
  return kBackwardFamilies;
}

template <class Problem>
Refusal consider(const KernelFamily<Problem>& family, const Problem& problem, const Device& device) {
  const Refusal refusal = consider_support(family.support, problem, problem.args.attention, device);
  if (refusal.verdict != Verdict::kAccept || family.refine == nullptr) return refusal;
  return family.refine(problem, device);
}

template <class Problem>
Status select(const Problem& problem, const Device& device, Selection<Problem>* selection) {
  if (environment().log_dispatch) log_dispatch(problem, device);
  CUFLASH_TRY(find_family(problem, device, &selection->family));
  selection->plan = selection->family->plan(problem, device);
  return Status();
}

template <class Problem>
void explain(const Problem& problem, const Device& device, TextWriter& out) {
  print_problem(out, Problem::kOperation, problem, problem.args.attention);
  if (problem.empty) {
    out.print("  nothing to compute: no kernel runs\n");
    return;
  }
  print_device(out, problem, device);
  const char* forced = forced_kernel(problem);
  if (forced != nullptr) out.print("forced: %s\n", forced);
  const KernelFamily<Problem>* chosen = nullptr;
  const Status found = find_family(problem, device, &chosen);
  for (const KernelFamily<Problem>* family : families<Problem>()) {
    const Refusal refusal = consider(*family, problem, device);
    out.print("  %-16s ", family->name);
    if (family == chosen) {
      print_plan(out, family->plan(problem, device));
    } else if (refusal.verdict == Verdict::kAccept) {
      out.print("could: not tried, %s", forced != nullptr ? "another kernel is forced" : "an earlier kernel accepts");
    } else {
      out.print(refusal.verdict == Verdict::kDecline ? "declines: " : "cannot: ");
      print_reason(out, refusal);
    }
    out.print("\n");
  }
  if (!found.ok()) out.print("  %s\n", last_error_message());
}

Status check_kernel_name(const char* argument, const char* name) {
  if (find<ForwardProblem>(name) != nullptr || find<BackwardProblem>(name) != nullptr) return Status();
  char names[256];
  TextWriter out(names, sizeof(names));
  for (const ForwardFamily* family : families<ForwardProblem>()) out.print(" %s", family->name);
  return fail(CUFLASH_STATUS_INVALID_ARGUMENT, "%s (\"%.64s\") must be one of:%s", argument, name, names);
}

template Refusal consider(const ForwardFamily&, const ForwardProblem&, const Device&);
template Refusal consider(const BackwardFamily&, const BackwardProblem&, const Device&);
template Status select(const ForwardProblem&, const Device&, Selection<ForwardProblem>*);
template Status select(const BackwardProblem&, const Device&, Selection<BackwardProblem>*);
template void explain(const ForwardProblem&, const Device&, TextWriter&);
template void explain(const BackwardProblem&, const Device&, TextWriter&);

}  // namespace cuflash
