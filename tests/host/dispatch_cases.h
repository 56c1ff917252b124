// SPDX-License-Identifier: MIT
// The problems over which the dispatch is frozen and checked: every feature alone, none, and all at once.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "calls.h"
#include "problem.h"
#include "registry.h"
#include "validate.h"

namespace cuflash::test {

template <class Problem>
using ParamsOf =
    std::conditional_t<std::is_same_v<Problem, ForwardProblem>, cuflashForwardParams_t, cuflashBackwardParams_t>;

// One GPU of each kind that the library names, and one older than all of them.
inline constexpr std::array kDispatchSms = {60, 70, 75, 80, 86, 87, 89, 90, 100, 120};

struct NamedDType {
  const char* name;
  cuflashDataType_t value;
};
inline constexpr std::array kDispatchDTypes = {
    NamedDType{"fp32", CUFLASH_R_32F}, NamedDType{"fp16", CUFLASH_R_16F}, NamedDType{"bf16", CUFLASH_R_16BF}};

template <class Params>
struct Variant {
  const char* name;
  void (*apply)(Params& params);
};

// Addresses are never read: a problem is only looked at.
template <class T>
const T* fake_address(uintptr_t offset = 0) {
  return reinterpret_cast<const T*>((uintptr_t{1} << 40) + offset);
}

template <class Params>
std::vector<Variant<Params>> dispatch_variants() {
  std::vector<Variant<Params>> variants = {
      {"plain", [](Params&) {}},
      {"causal", [](Params& p) { p.mask = CUFLASH_MASK_CAUSAL; }},
      {"window",
       [](Params& p) {
         p.mask = CUFLASH_MASK_WINDOW;
         p.window_left = 5;
         p.window_right = 3;
       }},
      {"top_left",
       [](Params& p) {
         if (p.mask == CUFLASH_MASK_NONE) p.mask = CUFLASH_MASK_CAUSAL;
         p.alignment = CUFLASH_ALIGN_TOP_LEFT;
       }},
      {"gqa", [](Params& p) { p.num_heads_k = 2; }},
      {"varlen",
       [](Params& p) {
         p.cu_seqlens_q = p.cu_seqlens_k = fake_address<int32_t>();
         p.total_q = p.total_k = 100;
       }},
      {"seqused", [](Params& p) { p.seqused_q = p.seqused_k = fake_address<int32_t>(); }},
      {"softcap", [](Params& p) { p.softcap = 30.0f; }},
      {"alibi", [](Params& p) { p.alibi_slopes = fake_address<float>(); }},
      {"unaligned", [](Params& p) { p.q.data = fake_address<char>(p.dtype == CUFLASH_R_32F ? 4 : 2); }},
      {"negative_scale", [](Params& p) { p.softmax_scale = -0.5f; }},
      {"head_dim_v", [](Params& p) { p.head_dim_v = p.head_dim == 64 ? 128 : 64; }},
  };
  if constexpr (std::is_same_v<Params, cuflashBackwardParams_t>) {
    variants.push_back({"dlse", [](Params& p) { p.dlse = fake_address<float>(); }});
    variants.push_back({"deterministic", [](Params& p) { p.deterministic = 1; }});
  }
  variants.push_back({"all", [](Params& p) {
                        for (const Variant<Params>& variant : dispatch_variants<Params>()) {
                          if (std::string(variant.name) != "all") variant.apply(p);
                        }
                      }});
  return variants;
}

// The problem that a caller's params become. Strides have room for any head_dim_v and are multiples of 16 bytes if
// head_dim is one, as those of a contiguous tensor are.
template <class Problem>
Problem dispatch_problem(
    cuflashDevice_t device, cuflashDataType_t dtype, int32_t head_dim, const Variant<ParamsOf<Problem>>& variant
) {
  const Shape shape = {
      .batch = 2,
      .num_heads = 4,
      .num_heads_k = 4,
      .seqlen_q = 128,
      .seqlen_k = 256,
      .head_dim = head_dim,
      .head_dim_v = head_dim};
  auto params = shape_params<ParamsOf<Problem>>(device, shape, dtype);
  variant.apply(params);
  if (params.head_dim_v != head_dim) {
    const auto shape_v = Shape{2, 4, params.num_heads_k, 128, 256, head_dim, params.head_dim_v};
    const auto strides = shape_params<ParamsOf<Problem>>(device, shape_v, dtype);
    params.v = strides.v;
    params.o = strides.o;
    if constexpr (std::is_same_v<Problem, BackwardProblem>) {
      params.dout = strides.dout;
      params.dv = strides.dv;
    }
  }
  Problem problem{};
  if (!validate(params, Pointers::kOptional, &problem).ok()) throw std::logic_error(cuflashGetLastErrorMessage());
  return problem;
}

// Shared memory that a block may have: the programming guide's table of compute capabilities.
inline int32_t shared_kilobytes(int32_t sm) {
  switch (sm) {
    case 60: return 48;
    case 70: return 96;
    case 75: return 64;
    case 80:
    case 87: return 163;
    case 86:
    case 89:
    case 120: return 99;
    case 90:
    case 100: return 227;
    default: throw std::logic_error("no shared memory is known for sm_" + std::to_string(sm));
  }
}

inline Device gpu(int32_t sm) {
  return {.ordinal = 0, .sm = sm, .num_sms = 100, .max_shared_bytes = shared_kilobytes(sm) * 1024};
}

// The family as a build with code for every GPU would hold it, so that the matrix is the same for every build.
inline constexpr BuiltArch kCodeForAll[] = {{0, BuiltArch::kPtx}};

template <class Problem>
KernelFamily<Problem> with_all_code(const KernelFamily<Problem>& family) {
  KernelFamily<Problem> copy = family;
  if (copy.support.device == CUFLASH_DEVICE_CUDA) copy.support.built = kCodeForAll;
  return copy;
}

template <class Problem>
const char* first_that_accepts(const Problem& problem, const Device& device) {
  for (const KernelFamily<Problem>* family : families<Problem>()) {
    if (consider(with_all_code(*family), problem, device).verdict == Verdict::kAccept) return family->name;
  }
  return "none";
}

}  // namespace cuflash::test
