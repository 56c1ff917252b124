// SPDX-License-Identifier: MIT
// Which kernel serves a problem. A family is a row of data and four functions; the two ordered tables are registry.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device.h"
#include "launch.h"
#include "problem.h"
#include "status.h"
#include "text_writer.h"

namespace cuflash {

// GPU code that the binary holds, as CMake resolved it per family.
struct BuiltArch {
  int32_t sm;
  enum Kind : int8_t {
    kReal,   // machine code: runs on this and later minor versions of the same major version
    kExact,  // architecture-specific machine code (sm_90a): runs on this version alone
    kPtx     // compiled by the driver for this and every later version
  } kind;

  constexpr bool runs_on(int32_t device_sm) const {
    switch (kind) {
      case kReal: return device_sm / 10 == sm / 10 && device_sm >= sm;
      case kExact: return device_sm == sm;
      default: return device_sm >= sm;
    }
  }
};

// The code of one room in this binary: the generated header kernels/<room>/built_architectures.h.
struct BuiltCode {
  int32_t min_sm;
  std::span<const BuiltArch> built;
  const char* architectures;  // `built` as text
};

// What a family can do at all, on any device and for any shape. Printed, compared, frozen by tests.
struct Support {
  cuflashDevice_t device;
  int32_t min_sm;
  int32_t max_sm;
  std::span<const BuiltArch> built;
  const char* architectures;  // `built` as text
  DTypeSet dtypes;
  int32_t max_head_dim;
  FeatureSet features;
};

// Of a room whose code runs on every GPU from its lowest on.
constexpr Support gpu_support(const BuiltCode& code, DTypeSet dtypes, int32_t max_head_dim, FeatureSet features) {
  return {
      .device = CUFLASH_DEVICE_CUDA,
      .min_sm = code.min_sm,
      .max_sm = 999,
      .built = code.built,
      .architectures = code.architectures,
      .dtypes = dtypes,
      .max_head_dim = max_head_dim,
      .features = features};
}

enum class Verdict {
  kAccept,
  kDecline,  // could, but another family is faster here; a forced kernel runs all the same
  kCannot
};

// A verdict with its reason as data; text is made only when somebody reads it.
struct Refusal {
  Verdict verdict = Verdict::kAccept;
  const char* field = nullptr;
  int64_t value = 0;
  const char* value_text = nullptr;  // printed instead of value if not null
  const char* rule = nullptr;
};

constexpr Refusal cannot(const char* field, int64_t value, const char* rule) {
  return {Verdict::kCannot, field, value, nullptr, rule};
}
constexpr Refusal cannot(const char* field, const char* value, const char* rule) {
  return {Verdict::kCannot, field, 0, value, rule};
}
constexpr Refusal declines(const char* field, int64_t value, const char* rule) {
  return {Verdict::kDecline, field, value, nullptr, rule};
}

// How a family is going to run a problem.
struct Plan {
  size_t workspace_bytes = 0;
  int32_t head_dim = 0;      // capacity of the kernel instance: the row of the room's tile table
  int32_t block_m = 0;       // query rows of a tile
  int32_t block_n = 0;       // key rows of a tile
  int32_t tile_row = 0;      // of the room's tile table, where a capacity has several
  int64_t query_blocks = 0;  // grid of the kernels whose blocks own query rows; 0: none, or the host
  int64_t key_blocks = 0;    // grid of the kernels whose blocks own key rows
};

template <class Problem>
struct KernelFamily {
  const char* name;
  Support support;
  Refusal (*refine)(const Problem& problem, const Device& device);  // what Support cannot say; may be null
  Plan (*plan)(const Problem& problem, const Device& device);
  Status (*launch)(const Problem& problem, const Plan& plan, const LaunchContext& context);
};

using ForwardFamily = KernelFamily<ForwardProblem>;
using BackwardFamily = KernelFamily<BackwardProblem>;

// All families in order of preference.
template <class Problem>
std::span<const KernelFamily<Problem>* const> families();

// The verdict of one family.
template <class Problem>
Refusal consider(const KernelFamily<Problem>& family, const Problem& problem, const Device& device);

template <class Problem>
struct Selection {
  const KernelFamily<Problem>* family = nullptr;
  Plan plan;
};

// The first family that accepts; the forced one if there is one, whatever it declines.
template <class Problem>
Status select(const Problem& problem, const Device& device, Selection<Problem>* selection);

// What select() does, as text.
template <class Problem>
void explain(const Problem& problem, const Device& device, TextWriter& out);

// INVALID_ARGUMENT with the list of names if there is no such kernel; `argument` is where the name came from.
Status check_kernel_name(const char* argument, const char* name);

}  // namespace cuflash
