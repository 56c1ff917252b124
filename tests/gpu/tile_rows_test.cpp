// SPDX-License-Identifier: MIT
// A room picks its tile row by the shared memory of the device, so that one GPU alone would run one choice of them.
// Here each GPU kernel plans for the limit of every generation, through the library's own registry, and what it planned
// runs on the GPU at hand: tile rows for smaller GPUs are run, not only compiled.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>

#include "registry.h"
#include "support/compare.h"
#include "support/conformance.h"
#include "support/parallel.h"
#include "support/target.h"
#include "validate.h"

namespace cuflash::test {
namespace {

// sm_75; sm_86, sm_89 and sm_120; sm_80; sm_90.
constexpr int32_t kSharedKilobytes[] = {64, 99, 163, 227};

Device device_with(int32_t shared_kilobytes) {
  Device device;
  if (!current_device(&device).ok()) throw std::runtime_error(last_error_message());
  device.max_shared_bytes = std::min(device.max_shared_bytes, shared_kilobytes * 1024);
  return device;
}

ForwardProblem problem_of(const Scenario& scenario, const Addresses& addresses, Pointers pointers, ForwardProblem) {
  ForwardProblem problem;
  const Status status = validate(forward_params(scenario, addresses, CUFLASH_DEVICE_CUDA), pointers, &problem);
  if (!status.ok()) throw std::runtime_error(last_error_message());
  return problem;
}

BackwardProblem problem_of(const Scenario& scenario, const Addresses& addresses, Pointers pointers, BackwardProblem) {
  BackwardProblem problem;
  const Status status = validate(backward_params(scenario, addresses, CUFLASH_DEVICE_CUDA), pointers, &problem);
  if (!status.ok()) throw std::runtime_error(last_error_message());
  return problem;
}

// What a plan tells of its choice.
struct Row {
  int32_t tile_row, capacity, block_m, block_n;
  auto operator<=>(const Row&) const = default;
};
Row row_of(const Plan& plan) { return {plan.tile_row, plan.head_dim, plan.block_m, plan.block_n}; }

Case case_with(Op op, DType dtype, bool deterministic, int32_t head_dim, const char* rest) {
  Case c = case_of(std::string("b=1 h=2 hk=1 ") + rest);
  c.op = op;
  c.dtype = dtype;
  c.deterministic = deterministic;
  c.head_dim = head_dim;
  return c;
}

struct Dims {
  int32_t smallest;
  int32_t largest;
  auto operator<=>(const Dims&) const = default;
};

// The head dims of each row that the family plans with on the device; nothing is run.
template <class Problem>
std::map<Row, Dims> rows_of(const KernelFamily<Problem>& family, const Case& shape, const Device& device) {
  std::map<Row, Dims> rows;
  for (int32_t head_dim = 1; head_dim <= kMaxHeadDim; ++head_dim) {
    Case c = shape;
    c.head_dim = head_dim;
    const Scenario scenario{c, make_geometry(c), {}};
    const Problem problem = problem_of(scenario, Addresses{}, Pointers::kOptional, Problem());
    if (consider(family, problem, device).verdict == Verdict::kCannot) continue;
    const auto [row, added] = rows.try_emplace(row_of(family.plan(problem, device)), Dims{head_dim, head_dim});
    row->second.largest = head_dim;
  }
  return rows;
}

// Runs what the family plans for the device; empty if the results are right.
template <class Problem>
std::string run_planned(const KernelFamily<Problem>& family, const Prepared& prepared, const Device& device) {
  const Scenario& scenario = prepared.scenario;
  std::vector<std::byte> image(scenario.image.size());
  {
    const std::unique_ptr<Memory> memory = target().open();
    std::byte* data = memory->reserve(image.size());
    memory->write(data, scenario.image.data(), image.size());
    const Problem problem = problem_of(scenario, addresses_in(scenario.geometry, data), Pointers::kRequired, Problem());
    const Plan plan = family.plan(problem, device);
    const std::vector<std::byte> poison(plan.workspace_bytes, static_cast<std::byte>(scenario.poison()));
    std::byte* workspace = memory->reserve(plan.workspace_bytes);
    memory->write(workspace, poison.data(), poison.size());
    const LaunchContext context{.workspace = workspace, .stream = reinterpret_cast<cudaStream_t>(memory->stream())};
    if (!family.launch(problem, plan, context).ok()) return last_error_message();
    memory->read(image.data(), data, image.size());
    memory->finish();
  }
  const std::string wrong = compare_guards(scenario, image);
  return !wrong.empty() ? wrong : compare_values(scenario, prepared.reference, image);
}

// Lengths just above a multiple of every tile: a full tile, and one with a single row or key.
constexpr const char* kShapes[] = {
    "sq=129 sk=193 mask=causal", "sq=193 sk=129 align=top_left mask=window wl=70 wr=9", "sq=193 sk=193"};

struct Task {
  Case c;
  int32_t shared_kilobytes;
};

// Every choice of the family at every limit; the same choice at several limits is run once.
template <class Problem>
std::vector<Task> tasks_of(const KernelFamily<Problem>& family, DType dtype, bool deterministic) {
  constexpr Op kOp = Problem::kOperation == CUFLASH_OP_FORWARD ? Op::kForward : Op::kBackward;
  std::vector<Task> tasks;
  std::set<std::pair<Row, Dims>> planned;
  for (const int32_t kilobytes : kSharedKilobytes) {
    std::printf("  %3d KB:", kilobytes);
    const Case shape = case_with(kOp, dtype, deterministic, 1, kShapes[0]);
    for (const auto& [row, dims] : rows_of(family, shape, device_with(kilobytes))) {
      std::printf(" %d:%dx%d", row.capacity, row.block_m, row.block_n);
      if (!planned.emplace(row, dims).second) continue;
      for (const char* rest : kShapes) {
        for (const int32_t head_dim : {dims.smallest, dims.largest}) {
          tasks.push_back({case_with(kOp, dtype, deterministic, head_dim, rest), kilobytes});
        }
      }
    }
    std::printf("\n");
  }
  return tasks;
}

template <class Problem>
std::vector<Task> tasks_of(const KernelFamily<Problem>& family) {
  constexpr bool kBackward = Problem::kOperation == CUFLASH_OP_BACKWARD;
  std::vector<Task> tasks;
  for (const DType dtype : {DType::kFp32, DType::kBf16}) {
    for (int32_t deterministic = 0; deterministic <= (kBackward ? 1 : 0); ++deterministic) {
      const char* suffix = deterministic == 1 ? ", deterministic" : "";
      std::printf(
          "%s, %s%s, capacity:block_m x block_n\n", family.name, dtype == DType::kFp32 ? "fp32" : "bf16", suffix
      );
      const std::vector<Task> more = tasks_of(family, dtype, deterministic == 1);
      tasks.insert(tasks.end(), more.begin(), more.end());
    }
  }
  return tasks;
}

template <class Problem>
void expect_every_row_right() {
  size_t cases = 0;
  for (const KernelFamily<Problem>* family : families<Problem>()) {
    if (family->support.device != CUFLASH_DEVICE_CUDA) continue;
    const std::vector<Task> tasks = tasks_of(*family);
    EXPECT_FALSE(tasks.empty()) << family->name << " serves nothing at any limit of shared memory";
    std::mutex mutex;
    parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
      const Task& task = tasks[static_cast<size_t>(i)];
      std::string wrong;
      try {
        wrong = run_planned(*family, prepare(task.c), device_with(task.shared_kilobytes));
      } catch (const std::exception& error) {
        wrong = error.what();
      }
      const std::lock_guard<std::mutex> lock(mutex);
      EXPECT_EQ(wrong, "") << family->name << ", " << task.shared_kilobytes << " KB: " << to_string(task.c);
    });
    cases += tasks.size();
  }
  std::printf("cases: %zu\n", cases);
  testing::Test::RecordProperty("cases", static_cast<int>(cases));
  EXPECT_GT(cases, 0u);
}

TEST(TileRowsTest, ForwardAtEveryLimitOfSharedMemory) { expect_every_row_right<ForwardProblem>(); }
TEST(TileRowsTest, BackwardAtEveryLimitOfSharedMemory) { expect_every_row_right<BackwardProblem>(); }

}  // namespace
}  // namespace cuflash::test
