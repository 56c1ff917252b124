// SPDX-License-Identifier: MIT
// Host time of a call. The clock is read around single calls while the stream is kept shallow: every few calls it is
// drained outside of the timing, so that no call waits for room in the queue.
#include <chrono>
#include <optional>
#include <string>

#include "attention.h"
#include "baseline_naive.h"
#include "bench.h"
#include "device_kernels.h"
#include "failure.h"
#include "registration.h"

namespace cuflash::bench {
namespace {

constexpr int kRounds = 40;
constexpr int kCallsPerRound = 50;

// One head, one row, one key, head_dim 64.
Case tiny_case(const Options& options) {
  Case c;
  if (!options.dtypes.empty()) c.dtype = options.dtypes.front();
  return c;
}

template <class Function>
double seconds_of(const Function& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void launch_empty(cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(128);
  config.stream = stream;
  require(cudaLaunchKernelExC(&config, empty_kernel(), nullptr), "cudaLaunchKernelExC");
}

double measure_call(const Lab& lab, benchmark::State& state, const Case& c, const char* kernel) {
  const Attention attention(c, CUFLASH_DEVICE_CUDA, Layout::kBshd);
  const PreparedCall prepared = prepare_library_call(attention, kernel);
  const cudaStream_t stream = lab.timer->stream();
  const auto sample_round = [&](Samples& samples, const auto& function) {
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize between rounds");
    for (int i = 0; i < kCallsPerRound; ++i) samples.seconds.push_back(seconds_of(function));
  };
  const auto call = [&] { prepared.call(stream); };
  const auto empty = [&] { launch_empty(stream); };
  Samples warm_up, calls, launches;
  sample_round(warm_up, call);
  sample_round(warm_up, empty);
  for (int round = 0; round < kRounds; ++round) {  // in turn, so that a change of the CPU's clock meets both
    sample_round(calls, call);
    sample_round(launches, empty);
  }
  require(cudaStreamSynchronize(stream), "cudaStreamSynchronize after the rounds");
  add_samples(state, calls);
  state.counters["empty_launch_us"] = 1e6 * launches.median();
  state.counters["on_top_us"] = 1e6 * (calls.median() - launches.median());
  return calls.median();
}

double measure_query(benchmark::State& state, const Case& c, cuflashDevice_t device, const char* kernel) {
  constexpr int kQueriesPerSample = 1000;  // one alone is too short for the clock
  const cuflashForwardParams_t params = forward_params(c, device, Layout::kBshd, kernel);
  const auto queries = [&] {
    for (int i = 0; i < kQueriesPerSample; ++i) {
      size_t bytes = 0;
      require(cuflashForwardGetWorkspaceSize(&params, &bytes), "cuflashForwardGetWorkspaceSize");
    }
  };
  Samples samples;
  queries();
  for (int i = 0; i < kRounds; ++i) samples.seconds.push_back(seconds_of(queries) / kQueriesPerSample);
  add_samples(state, samples);
  return samples.median();
}

// kernel NULL: what the library chooses.
void register_call(Lab& lab, const std::string& name, const Case& c, const char* kernel) {
  const std::optional<std::string> forced = kernel != nullptr ? std::optional<std::string>(kernel) : std::nullopt;
  register_benchmark(lab, "overhead/call/" + name, benchmark::kMicrosecond, [&lab, c, forced](benchmark::State& state) {
    return measure_call(lab, state, c, forced ? forced->c_str() : nullptr);
  });
}

void register_query(Lab& lab, const Kernel& kernel, const Case& c) {
  register_benchmark(
      lab,
      "overhead/query/" + kernel.name,
      benchmark::kMicrosecond,
      [c, kernel](benchmark::State& state) { return measure_query(state, c, kernel.device, kernel.name.c_str()); }
  );
}

}  // namespace

void register_overheads(Lab& lab) {
  const Case c = tiny_case(lab.options);
  if (lab.gpu) register_call(lab, "auto", c, nullptr);
  for (const Kernel& kernel : wanted_kernels(lab)) {
    if (kernel.name == kNaive || !why_not(lab, kernel, c).empty()) continue;
    register_query(lab, kernel, c);
    if (kernel.device == CUFLASH_DEVICE_CUDA) register_call(lab, kernel.name, c, kernel.name.c_str());
  }
}

}  // namespace cuflash::bench
