// SPDX-License-Identifier: MIT
// Which benchmarks a command line means, and which of them can run here.
#pragma once

#include <string>
#include <vector>

#include "cases.h"
#include "lab.h"

namespace cuflash::bench {

struct Kernel {
  std::string name;
  cuflashDevice_t device;
};

struct Planned {
  Case problem;
  Kernel kernel;
  Temperature temperature;
  std::string why_not;  // empty: it can run

  std::string name() const { return benchmark_name(problem, kernel.name, temperature); }
};

// The library's kernels in its order of preference, then naive.
std::vector<Kernel> known_kernels();

// Those that the command line asks for. Throws UsageError for an unknown name.
std::vector<Kernel> wanted_kernels(const Lab& lab);

// Without asking whether they can run.
std::vector<Planned> all_benchmarks(const Lab& lab);

// Why a kernel cannot run a case here; empty if it can.
std::string why_not(const Lab& lab, const Kernel& kernel, const Case& c);

// all_benchmarks() with why_not filled in.
std::vector<Planned> plan_benchmarks(const Lab& lab);

bool overhead_wanted(const Options& options);

// What the library's dispatch says of a case; kernel NULL asks for its own choice.
std::string explain(const Case& c, cuflashDevice_t device, const char* kernel);

}  // namespace cuflash::bench
