// SPDX-License-Identifier: MIT
#include "conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "compare.h"
#include "parallel.h"
#include "target.h"

namespace cuflash::test {
namespace {

constexpr size_t kMaxReported = 20;
std::string program_name = "conformance";

// What all threads found, collected.
class Tally {
 public:
  void add_run(const Kernel& kernel) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++runs_[label(kernel)];
  }
  void add_failure(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failures_.push_back(text);
  }

  void report(size_t cases, double seconds, const std::vector<Kernel>& kernels) {
    std::printf("cases: %zu in %.1f s;", cases, seconds);
    for (const Kernel& kernel : kernels) {
      const int runs = runs_[label(kernel)];
      std::printf(" %s: %d", label(kernel).c_str(), runs);
      EXPECT_GT(runs, 0) << label(kernel) << " accepted none of " << cases << " cases";
      testing::Test::RecordProperty("runs_" + label(kernel), runs);
    }
    std::printf("\n");
    testing::Test::RecordProperty("cases", static_cast<int>(cases));
    std::sort(failures_.begin(), failures_.end(), [](const std::string& x, const std::string& y) {
      return x.size() != y.size() ? x.size() < y.size() : x < y;
    });
    for (size_t i = 0; i < std::min(failures_.size(), kMaxReported); ++i) ADD_FAILURE() << failures_[i];
    if (failures_.size() > kMaxReported) {
      ADD_FAILURE() << failures_.size() - kMaxReported << " more failures are not shown";
    }
  }

 private:
  static std::string label(const Kernel& kernel) {
    return std::string(kernel.name) + (kernel.op == Op::kForward ? "_fwd" : "_bwd");
  }

  std::mutex mutex_;
  std::map<std::string, int> runs_;
  std::vector<std::string> failures_;
};

void run_case(const Case& c, Placement placement, Tally* tally) {
  const Prepared prepared = prepare(c);
  bool served = false;
  for (const Kernel& kernel : kernels_of(c.op, target().device())) {
    bool accepted = false;
    const std::string failure = check_kernel(prepared, kernel.name, &accepted, placement);
    if (accepted) tally->add_run(kernel);
    if (!failure.empty()) tally->add_failure(failure);
    served |= accepted;
  }
  if (!served) tally->add_failure("no kernel accepts this case" + repro(c, "any"));
}

int32_t dtype_bit(DType dtype) {
  switch (dtype) {
    case DType::kFp16: return CUFLASH_DTYPE_BIT_16F;
    case DType::kBf16: return CUFLASH_DTYPE_BIT_16BF;
    default: return CUFLASH_DTYPE_BIT_32F;
  }
}

// Every kernel that some case could run on: of its operation, in a dtype that it serves.
std::vector<Kernel> kernels_for(const std::vector<Case>& cases) {
  std::vector<Kernel> kernels;
  for (const Op op : {Op::kForward, Op::kBackward}) {
    for (const Kernel& kernel : kernels_of(op, target().device())) {
      const auto suits = [&](const Case& c) { return c.op == op && (kernel.dtypes & dtype_bit(c.dtype)) != 0; };
      if (std::any_of(cases.begin(), cases.end(), suits)) kernels.push_back(kernel);
    }
  }
  return kernels;
}

}  // namespace

int test_level() {
  static const int level = [] {
    const char* text = std::getenv("CUFLASH_TEST_LEVEL");
    return text == nullptr ? 1 : std::clamp(std::atoi(text), 0, 3);
  }();
  return level;
}

Prepared prepare(const Case& c) {
  Prepared prepared{make_scenario(c), {}};
  if (c.op == Op::kBackward) fill_forward_results(&prepared.scenario);
  prepared.reference = make_reference(prepared.scenario);
  return prepared;
}

std::string check_kernel(const Prepared& prepared, const char* kernel, bool* accepted, Placement placement) {
  const Scenario& scenario = prepared.scenario;
  std::vector<std::byte> image;
  std::string wrong;
  {
    // Memory checkers are slow, up to standing still, with many threads that allocate and launch: one case at a time.
    static std::mutex exact;
    std::unique_lock<std::mutex> alone(exact, std::defer_lock);
    if (placement == Placement::kExact) alone.lock();
    const std::unique_ptr<Memory> memory = placement == Placement::kExact ? target().open_exact() : target().open();
    Execution execution(scenario, kernel, *memory, placement);
    *accepted = execution.accepted() == CUFLASH_STATUS_SUCCESS;
    if (execution.accepted() == CUFLASH_STATUS_NOT_SUPPORTED) return "";
    const cuflashStatus_t status = *accepted ? execution.run() : execution.accepted();
    if (status != CUFLASH_STATUS_SUCCESS) {
      return std::string(cuflashGetStatusString(status)) + ": " + cuflashGetLastErrorMessage() +
             repro(scenario.c, kernel);
    }
    image = execution.read();
    wrong = execution.check_workspace();
  }
  if (wrong.empty()) wrong = compare_guards(scenario, image);
  if (wrong.empty()) wrong = compare_values(scenario, prepared.reference, image);
  return wrong.empty() ? "" : wrong + repro(scenario.c, kernel);
}

bool accepts(const Scenario& scenario, const char* kernel) {
  // A size query looks at addresses only for their alignment.
  const Addresses addresses = addresses_in(scenario.geometry, const_cast<std::byte*>(scenario.image.data()));
  size_t bytes = 0;
  return Call(scenario, addresses, target().device(), kernel).workspace_size(&bytes) == CUFLASH_STATUS_SUCCESS;
}

std::vector<std::byte> run_kernel(const Scenario& scenario, const char* kernel) {
  const std::unique_ptr<Memory> memory = target().open();
  Execution execution(scenario, kernel, *memory);
  if (execution.accepted() != CUFLASH_STATUS_SUCCESS || execution.run() != CUFLASH_STATUS_SUCCESS) {
    throw std::runtime_error(cuflashGetLastErrorMessage() + repro(scenario.c, kernel));
  }
  return results_only(scenario, execution.read());
}

void expect_conformance(const std::vector<Case>& cases, Placement placement) {
  Tally tally;
  std::atomic<bool> stop{false};
  const auto start = std::chrono::steady_clock::now();
  parallel_for(static_cast<int64_t>(cases.size()), [&](int64_t i) {
    if (stop) return;
    const Case& c = cases[static_cast<size_t>(i)];
    try {
      run_case(c, placement, &tally);
    } catch (const std::exception& error) {
      // After a failed CUDA call nothing that follows can be trusted.
      stop = true;
      tally.add_failure(std::string("stopped: ") + error.what() + repro(c, "any"));
    }
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  tally.report(cases.size(), seconds.count(), kernels_for(cases));
}

void expect_conformance(const std::vector<std::string>& lines) {
  std::vector<Case> cases;
  for (const std::string& line : lines) cases.push_back(case_of(line));
  expect_conformance(cases);
}

std::string repro(const Case& c, const char* kernel) {
  return "\n  " + program_name + " --case='" + to_string(c) + "' --kernel=" + kernel;
}

int run_one_case(const std::string& line, const std::string& wanted) {
  Case c;
  std::string error;
  if (!parse_case(line, &c, &error)) {
    std::fprintf(stderr, "--case: %s\n", error.c_str());
    return 2;
  }
  const Prepared prepared = prepare(c);
  bool found = false, failed = false;
  for (const Kernel& kernel : kernels_of(c.op, target().device())) {
    if (wanted != "any" && wanted != kernel.name) continue;
    found = true;
    bool accepted = false;
    const std::string failure = check_kernel(prepared, kernel.name, &accepted);
    const char* verdict = !failure.empty() ? failure.c_str() : accepted ? "right" : cuflashGetLastErrorMessage();
    std::printf("%s: %s\n", kernel.name, verdict);
    failed |= !failure.empty();
  }
  if (!found) std::fprintf(stderr, "--kernel=%s: no such kernel on this device\n", wanted.c_str());
  return found && !failed ? 0 : 1;
}

void set_program_name(const std::string& argv0) { program_name = argv0.substr(argv0.rfind('/') + 1); }

}  // namespace cuflash::test
