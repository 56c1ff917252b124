// SPDX-License-Identifier: MIT
// main() of the conformance programs: GoogleTest's options, and
//   --case='op=fwd dtype=bf16 ...' [--kernel=NAME]   runs this one case and says what is wrong with it
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "conformance.h"
#include "target.h"

namespace {

constexpr int kSkipped = 77;  // CTest's SKIP_RETURN_CODE

bool take_option(std::string_view argument, std::string_view prefix, std::string* value) {
  if (argument.substr(0, prefix.size()) != prefix) return false;
  *value = argument.substr(prefix.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace cuflash::test;
  testing::InitGoogleTest(&argc, argv);
  set_program_name(argv[0]);
  std::string case_line;
  std::string kernel = "any";
  for (int i = 1; i < argc; ++i) {
    if (take_option(argv[i], "--case=", &case_line) || take_option(argv[i], "--kernel=", &kernel)) continue;
    std::fprintf(stderr, "unknown option %s\n", argv[i]);
    return 2;
  }
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  if (const std::string reason = target().unusable(); !reason.empty()) {
    std::printf("SKIPPED: %s\n", reason.c_str());
    return kSkipped;
  }
  return case_line.empty() ? RUN_ALL_TESTS() : run_one_case(case_line, kernel);
}
