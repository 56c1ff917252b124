// SPDX-License-Identifier: MIT
// Cases for tests about calls rather than values: every kernel of both directions with each line and dtype.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "support/call.h"
#include "support/conformance.h"
#include "support/target.h"

namespace cuflash::test {

struct KernelCase {
  Kernel kernel;
  Scenario scenario;
  std::vector<std::byte> expected;  // results of a call alone on an idle GPU
};

// Backward cases are deterministic. Kernels that refuse a case are left out.
inline std::vector<KernelCase> kernel_cases(const std::vector<std::string>& lines) {
  std::vector<KernelCase> cases;
  const auto add = [&cases](const Case& c) {
    const Prepared prepared = prepare(c);
    for (const Kernel& kernel : kernels_of(c.op, target().device())) {
      bool accepted = false;
      const std::string failure = check_kernel(prepared, kernel.name, &accepted);
      if (!failure.empty()) throw std::runtime_error(failure);
      if (accepted) cases.push_back({kernel, prepared.scenario, run_kernel(prepared.scenario, kernel.name)});
    }
  };
  for (const Op op : {Op::kForward, Op::kBackward}) {
    for (const DType dtype : kAllDTypes) {
      for (const std::string& line : lines) {
        Case c = case_of(line);
        c.op = op;
        c.dtype = dtype;
        c.deterministic = op == Op::kBackward;
        add(c);
      }
    }
  }
  if (cases.empty()) throw std::runtime_error("no kernel accepts any of the cases");
  return cases;
}

// A case placed in memory of its own, for calls on any stream beside others.
class OwnExecution {
 public:
  explicit OwnExecution(const KernelCase& kernel_case)
      : case_(kernel_case),
        memory_(target().open_exact()),
        execution_(kernel_case.scenario, kernel_case.kernel.name, *memory_) {}

  void enqueue(cuflashStream_t stream) {
    if (execution_.run(stream) == CUFLASH_STATUS_SUCCESS) return;
    throw std::runtime_error(cuflashGetLastErrorMessage() + repro(case_.scenario.c, case_.kernel.name));
  }

  // Outputs are poison again: a call that does nothing does not pass for one that repeats.
  void reset() { execution_.reset(case_.scenario.image); }

  // Empty, or the line that repeats the case. The caller has waited for its stream.
  std::string check() {
    return execution_.read() == case_.expected
               ? ""
               : "another result than alone" + repro(case_.scenario.c, case_.kernel.name);
  }

  // The same for the outputs alone, which is faster.
  std::string check_outputs() {
    static constexpr Buffer kForwardOutputs[] = {Buffer::kO, Buffer::kLse};
    static constexpr Buffer kBackwardOutputs[] = {Buffer::kDq, Buffer::kDk, Buffer::kDv};
    const bool forward = case_.kernel.op == Op::kForward;
    for (const Buffer buffer : forward ? std::span<const Buffer>(kForwardOutputs) : kBackwardOutputs) {
      execution_.read(buffer, &content_);
      const auto expected = case_.expected.begin() + case_.scenario.geometry.segment(buffer).offset;
      if (!std::equal(content_.begin(), content_.end(), expected)) return check();
    }
    return "";
  }

  const KernelCase& kernel_case() const { return case_; }
  Execution& execution() { return execution_; }

 private:
  const KernelCase& case_;
  std::unique_ptr<Memory> memory_;
  Execution execution_;
  std::vector<std::byte> content_;
};

}  // namespace cuflash::test
