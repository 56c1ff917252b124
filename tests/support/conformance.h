// SPDX-License-Identifier: MIT
// Runs cases through every kernel that accepts them, by name, and reports to GoogleTest.
#pragma once

#include <string>
#include <vector>

#include "call.h"
#include "case.h"
#include "reference.h"
#include "scenario.h"

namespace cuflash::test {

// CUFLASH_TEST_LEVEL, 1 if not set: how many cases the programs run.
//   0  a sample, for builds with sanitizers
//   1  the default: each host program under a minute on 2 cores, all GPU programs under 4 minutes on an H200 with 16
//   2  ten times the random cases: a few minutes on a GPU
//   3  everything: half an hour on a GPU
int test_level();

// The entry of a table by level, {sample, default, more, all}.
template <class T>
const T& by_level(const T (&choices)[4]) {
  return choices[test_level()];
}

// Inputs and expected results of a case, made once for all kernels.
struct Prepared {
  Scenario scenario;
  Reference reference;
};
Prepared prepare(const Case& c);

// Empty, or what is wrong with this kernel's answer, with the line that repeats it. `accepted` is false if the kernel
// refuses the case with NOT_SUPPORTED.
std::string check_kernel(
    const Prepared& prepared, const char* kernel, bool* accepted, Placement placement = Placement::kGuarded
);

// Whether the kernel serves such a case; runs nothing.
bool accepts(const Scenario& scenario, const char* kernel);

// The bytes of the results of one kernel, for comparisons bit by bit; everything else is as in the scenario. Throws if
// the call fails.
std::vector<std::byte> run_kernel(const Scenario& scenario, const char* kernel);

// Runs all cases on all cores; failures become test failures. Prints and records the number of cases. Each case must be
// accepted by some kernel, each kernel must accept some case.
void expect_conformance(const std::vector<Case>& cases, Placement placement = Placement::kGuarded);
void expect_conformance(const std::vector<std::string>& lines);

// "\n  test_gpu_conformance --case='...' --kernel=scalar"
std::string repro(const Case& c, const char* kernel);

// For --case: runs it through the named kernel or all, printing verdicts. Returns main's exit status.
int run_one_case(const std::string& line, const std::string& kernel);

void set_program_name(const std::string& argv0);

}  // namespace cuflash::test
