// SPDX-License-Identifier: MIT
// cuflash_bench, the benchmark command line. docs/performance/README.md says how it measures.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "baseline_naive.h"
#include "bench.h"
#include "context.h"
#include "lab.h"
#include "options.h"
#include "plan.h"
#include "reporters.h"

namespace cuflash::bench {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

void initialize_google_benchmark(const Options& options) {
  std::vector<std::string> args = {"cuflash_bench"};
  if (!options.out.empty()) {
    const std::filesystem::path folder = std::filesystem::path(options.out).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder);
    args.push_back("--benchmark_out=" + options.out);
    args.push_back("--benchmark_out_format=json");
  }
  args.insert(args.end(), options.google_benchmark.begin(), options.google_benchmark.end());
  std::vector<char*> pointers;
  for (std::string& arg : args) pointers.push_back(arg.data());
  pointers.push_back(nullptr);
  int count = static_cast<int>(args.size());
  benchmark::Initialize(&count, pointers.data());
  if (count > 1) throw UsageError(std::string("Google Benchmark does not know ") + pointers[1]);
}

// Says once per kernel and reason what does not run.
void report_skipped(const std::vector<Planned>& planned) {
  std::map<std::pair<std::string, std::string>, int> skipped;
  for (const Planned& one : planned) {
    if (!one.why_not.empty()) ++skipped[{one.kernel.name, one.why_not}];
  }
  for (const auto& [key, count] : skipped) {
    std::fprintf(stderr, "skipped: %d of %s: %s\n", count, key.first.c_str(), key.second.c_str());
  }
}

int run(Lab& lab, std::span<const char* const> args) {
  const std::vector<Planned> planned = plan_benchmarks(lab);
  if (!lab.gpu) std::fprintf(stderr, "no GPU: %s\n", lab.no_gpu_reason.c_str());
  if (lab.gpu && !lab.cublas) std::fprintf(stderr, "no matrix ceiling: %s\n", lab.no_cublas_reason.c_str());
  report_skipped(planned);

  initialize_google_benchmark(lab.options);
  const RunContext context = describe_run(lab, args);
  register_ceilings(lab, planned);
  if (overhead_wanted(lab.options)) register_overheads(lab);
  register_attention(lab, planned);

  TableReporter table(context);
  RecordReporter record(context);
  const size_t count = benchmark::RunSpecifiedBenchmarks(&table, lab.options.out.empty() ? nullptr : &record);
  benchmark::Shutdown();
  if (count == 0) std::fprintf(stderr, "nothing to run\n");
  if (lab.failures > 0) std::fprintf(stderr, "%d of %zu benchmarks failed\n", lab.failures, count);
  return count == 0 || lab.failures > 0 ? kExitFailed : 0;
}

int list(Lab& lab) {
  if (lab.options.kernels.empty()) lab.options.kernels = {"all"};
  std::printf("kernels:");
  for (const Kernel& kernel : known_kernels()) std::printf(" %s", kernel.name.c_str());
  std::printf("\nbenchmarks:\n");
  for (const Planned& one : all_benchmarks(lab)) std::printf("  %s\n", one.name().c_str());
  return 0;
}

int dry_run(const Lab& lab) {
  for (const Planned& one : plan_benchmarks(lab)) {
    std::printf("%s: %s\n", one.name().c_str(), one.why_not.empty() ? "runs" : ("skipped, " + one.why_not).c_str());
    if (!one.why_not.empty() || one.kernel.name == kNaive) continue;
    std::printf("%s", explain(one.problem, one.kernel.device, one.kernel.name.c_str()).c_str());
  }
  return 0;
}

int dispatch(std::span<const char* const> args) {
  Options options = parse_options(args);
  if (options.mode == Options::Mode::kHelp) {
    std::printf("%s", kUsage);
    return 0;
  }
  Lab lab(std::move(options));
  switch (lab.options.mode) {
    case Options::Mode::kList: return list(lab);
    case Options::Mode::kDryRun: return dry_run(lab);
    case Options::Mode::kCaps: print_caps(lab); return 0;
    default: return run(lab, args);
  }
}

}  // namespace
}  // namespace cuflash::bench

int main(int argc, char** argv) {
  using namespace cuflash::bench;
  try {
    return dispatch({argv + 1, static_cast<size_t>(argc - 1)});
  } catch (const UsageError& error) {
    std::fprintf(stderr, "cuflash_bench: %s\n", error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuflash_bench: %s\n", error.what());
    return kExitFailed;
  }
}
