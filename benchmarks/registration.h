// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include <benchmark/benchmark.h>

#include "lab.h"

namespace cuflash::bench {

inline void add_samples(benchmark::State& state, const Samples& samples) {
  state.counters["samples"] = static_cast<double>(samples.seconds.size());
  state.counters["min_ms"] = 1e3 * samples.min();
}

// measure(state) returns the seconds to report, and sets counters. If it throws, this benchmark has failed.
template <class Measure>
void register_benchmark(Lab& lab, const std::string& name, benchmark::TimeUnit unit, const Measure& measure) {
  const auto run = [&lab, name, measure](benchmark::State& state) {
    try {
      const double seconds = measure(state);
      for ([[maybe_unused]] auto _ : state) state.SetIterationTime(seconds);
    } catch (const std::exception& failure) {
      ++lab.failures;
      std::fprintf(stderr, "%s: %s\n", name.c_str(), failure.what());
      state.SkipWithError(failure.what());
    }
  };
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Iterations(1)->Unit(unit);
}

}  // namespace cuflash::bench
