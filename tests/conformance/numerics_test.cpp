// SPDX-License-Identifier: MIT
// Data at the edges of the number formats: every row of the table of distributions, and that its comparisons can fail.
#include <gtest/gtest.h>

#include <set>

#include "distributions.h"
#include "support/compare.h"
#include "support/conformance.h"
#include "support/parallel.h"

namespace cuflash::test {
namespace {

TEST(NumericsTest, AtLeastFortyDistributions) {
  std::set<std::string> names;
  std::vector<Case> cases;
  for (const NamedDistribution& row : kDistributions) {
    names.insert(row.name);
    for (const Case& c : cases_of(row)) cases.push_back(c);
  }
  EXPECT_EQ(names.size(), std::size(kDistributions)) << "a name twice";
  EXPECT_GE(names.size(), 40u);
  RecordProperty("distributions", static_cast<int>(names.size()));
  std::printf("distributions: %zu; ", names.size());
  expect_conformance(cases);
}

// The tensors of a case of which more rows than a few could be zero and pass.
std::set<std::string> vacuous_tensors(const Case& c) {
  constexpr double kMostVacuous = 1.0 / 16;
  std::set<std::string> names;
  const Prepared prepared = prepare(c);
  const auto check = [&](const char* name, const Vacuity& vacuity) {
    if (static_cast<double>(vacuity.vacuous) > kMostVacuous * static_cast<double>(vacuity.rows)) names.insert(name);
  };
  for_each_output(
      prepared.scenario,
      prepared.reference,
      [&](const char* name, const View&, const Side&, const Expected& expected) {
        check(name, vacuity_of(expected, c.dtype));
      }
  );
  if (c.op == Op::kForward) check("lse", vacuity_of(prepared.reference.lse, DType::kFp32));
  return names;
}

bool excused(const Vanishing& vanishing, const std::string& tensor, const Case& c) {
  return std::string(vanishing.tensors).find(tensor) != std::string::npos && (vanishing.even_with_dlse || !c.dlse);
}

TEST(NumericsTest, ZerosWouldNotPassAsResults) {
  for (const NamedDistribution& row : kDistributions) {
    const std::vector<Case> cases = cases_of(row);
    std::vector<std::set<std::string>> vacuous(cases.size());
    parallel_for(static_cast<int64_t>(cases.size()), [&](int64_t i) {
      const auto index = static_cast<size_t>(i);
      vacuous[index] = vacuous_tensors(cases[index]);
    });
    std::set<std::string> needed;
    for (size_t i = 0; i < cases.size(); ++i) {
      for (const std::string& tensor : vacuous[i]) {
        EXPECT_TRUE(excused(row.vanishing, tensor, cases[i]))
            << row.name << ": most rows of " << tensor << " would pass as zeros, " << to_string(cases[i]);
        needed.insert(tensor);
      }
    }
    for (const std::string tensor : {"o", "lse", "dq", "dk", "dv"}) {
      if (std::string(row.vanishing.tensors).find(tensor) == std::string::npos) continue;
      EXPECT_EQ(needed.count(tensor), 1u) << row.name << ", " << tensor << ": no longer so: " << row.vanishing.reason;
    }
  }
}

}  // namespace
}  // namespace cuflash::test
