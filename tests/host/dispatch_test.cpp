// SPDX-License-Identifier: MIT
// Which kernel serves what: the whole matrix against tests/golden/dispatch.txt, with injected GPUs.
//   dispatch_test GOLDEN            compares
//   dispatch_test GOLDEN --update   writes the file anew
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "dispatch_cases.h"
#include "registry.h"

namespace cuflash::test {
namespace {

std::string golden_path;
bool update_golden = false;

// "1..64 fast, 65..256 scalar": the choice for some head dims, in ascending order.
template <class Choice>
std::string ranges(const std::vector<int32_t>& head_dims, const Choice& choice) {
  std::ostringstream text;
  for (size_t first = 0; first < head_dims.size();) {
    const std::string chosen = choice(head_dims[first]);
    size_t last = first;
    while (last + 1 < head_dims.size() && choice(head_dims[last + 1]) == chosen) ++last;
    text << (first == 0 ? "" : ", ") << head_dims[first] << ".." << head_dims[last] << " " << chosen;
    first = last + 1;
  }
  return text.str();
}

// The choice for every head_dim; for multiples of 8, whose rows are aligned, and others apart where that is shorter.
template <class Problem>
std::string choices(
    cuflashDevice_t where, const Device& device, cuflashDataType_t dtype, const Variant<ParamsOf<Problem>>& variant
) {
  const auto choice = [&](int32_t head_dim) {
    return std::string(first_that_accepts(dispatch_problem<Problem>(where, dtype, head_dim, variant), device));
  };
  std::vector<int32_t> all, multiples, others;
  for (int32_t head_dim = 1; head_dim <= 256; ++head_dim) {
    all.push_back(head_dim);
    (head_dim % 8 == 0 ? multiples : others).push_back(head_dim);
  }
  const std::string together = ranges(all, choice);
  const std::string apart = ranges(multiples, choice) + " by 8, " + ranges(others, choice) + " else";
  return apart.size() < together.size() ? apart : together;
}

template <class Problem>
void print_matrix(std::ostream& out, const char* where_name, cuflashDevice_t where, const Device& device) {
  for (const NamedDType& dtype : kDispatchDTypes) {
    for (const auto& variant : dispatch_variants<ParamsOf<Problem>>()) {
      char line[256];
      std::snprintf(
          line,
          sizeof(line),
          "%-8s  %-6s  %s  %-14s  ",
          Api<ParamsOf<Problem>>::kName,
          where_name,
          dtype.name,
          variant.name
      );
      out << line << choices<Problem>(where, device, dtype.value, variant) << "\n";
    }
  }
}

template <class Problem>
void print_all_devices(std::ostream& out) {
  for (const int32_t sm : kDispatchSms) {
    print_matrix<Problem>(out, ("sm_" + std::to_string(sm)).c_str(), CUFLASH_DEVICE_CUDA, gpu(sm));
  }
  print_matrix<Problem>(out, "host", CUFLASH_DEVICE_HOST, Device());
}

std::string matrix() {
  std::ostringstream out;
  out << "# Which kernel serves what: operation, device, dtype, feature beyond plain attention, then head_dim and "
         "kernel.\n"
         "# A GPU's row holds for a build with code for it. Written by dispatch_test --update.\n";
  print_all_devices<ForwardProblem>(out);
  print_all_devices<BackwardProblem>(out);
  return out.str();
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(DispatchGolden, MatrixIsAsFrozen) {
  const std::string now = matrix();
  if (update_golden) {
    ASSERT_TRUE(std::ofstream(golden_path, std::ios::binary) << now) << golden_path;
  }
  const std::string frozen = read_file(golden_path);
  ASSERT_FALSE(frozen.empty()) << golden_path;
  std::istringstream now_lines(now), frozen_lines(frozen);
  std::string now_line, frozen_line;
  for (int number = 1; std::getline(now_lines, now_line); ++number) {
    ASSERT_TRUE(std::getline(frozen_lines, frozen_line)) << "line " << number << " is new: " << now_line;
    ASSERT_EQ(now_line, frozen_line) << golden_path << ":" << number;
  }
  EXPECT_FALSE(std::getline(frozen_lines, frozen_line)) << "line is gone: " << frozen_line;
}

}  // namespace
}  // namespace cuflash::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 2 || argc > 3 || (argc == 3 && std::string(argv[2]) != "--update")) {
    std::fprintf(stderr, "usage: dispatch_test GOLDEN [--update]\n");
    return 2;
  }
  cuflash::test::golden_path = argv[1];
  cuflash::test::update_golden = argc == 3;
  return RUN_ALL_TESTS();
}
