// SPDX-License-Identifier: MIT
#include "attention.h"
#include "baseline_naive.h"
#include "bench.h"
#include "check.h"
#include "failure.h"
#include "registration.h"

namespace cuflash::bench {
namespace {

PreparedCall prepare(const Lab& lab, const Attention& attention, const Kernel& kernel) {
  if (kernel.name == kNaive) return prepare_naive_call(attention, *lab.cublas);
  return prepare_library_call(attention, kernel.name.c_str());
}

void check(const Lab& lab, benchmark::State& state, Attention& attention, const Call& call) {
  attention.poison_outputs();
  if (attention.device == CUFLASH_DEVICE_HOST) {
    call(nullptr);
  } else {
    call(lab.timer->stream());
    require(cudaStreamSynchronize(lab.timer->stream()), "cudaStreamSynchronize after the checked call");
  }
  const CheckResult result = check_outputs(attention);
  state.counters["max_error"] = result.max_error;
  state.counters["rel_error"] = result.relative_error;
  state.SetLabel("checked: " + result.scope);
}

void add_rates(const Lab& lab, benchmark::State& state, const Planned& planned, double seconds) {
  const double flops_per_second = flops(planned.problem) / seconds;
  const double bytes_per_second = minimum_bytes(planned.problem) / seconds;
  state.counters["TFLOP/s"] = 1e-12 * flops_per_second;
  state.counters["GB/s"] = 1e-9 * bytes_per_second;
  if (planned.kernel.device == CUFLASH_DEVICE_HOST) return;
  if (const auto matmul = lab.matmul_flops_per_second.find(planned.problem.dtype);
      matmul != lab.matmul_flops_per_second.end()) {
    state.counters["%matmul"] = 100 * flops_per_second / matmul->second;
  }
  if (lab.copy_bytes_per_second) state.counters["%copy"] = 100 * bytes_per_second / *lab.copy_bytes_per_second;
}

double measure(const Lab& lab, benchmark::State& state, const Planned& planned) {
  const bool on_host = planned.kernel.device == CUFLASH_DEVICE_HOST;
  const Layout layout = planned.kernel.name == kNaive ? Layout::kBhsd : Layout::kBshd;
  Attention attention(planned.problem, planned.kernel.device, layout);
  const PreparedCall prepared = prepare(lab, attention, planned.kernel);
  if (lab.options.check) check(lab, state, attention, prepared.call);

  const SampleRule rule = lab.sample_rule();
  const Samples samples =
      on_host ? measure_on_host(prepared.call, rule) : lab.timer->measure(prepared.call, planned.temperature, rule);
  add_samples(state, samples);
  add_rates(lab, state, planned, samples.median());
  state.counters["workspace_MiB"] = static_cast<double>(prepared.workspace_bytes) / 1048576.0;
  if (!on_host && lab.nvml) {
    if (const auto mhz = lab.nvml->clock_mhz(Nvml::Clock::kSm)) state.counters["sm_MHz"] = *mhz;
  }
  return samples.median();
}

}  // namespace

void register_attention(Lab& lab, const std::vector<Planned>& planned) {
  for (const Planned& one : planned) {
    if (!one.why_not.empty()) continue;
    register_benchmark(lab, one.name(), benchmark::kMillisecond, [&lab, one](benchmark::State& state) {
      return measure(lab, state, one);
    });
  }
}

}  // namespace cuflash::bench
