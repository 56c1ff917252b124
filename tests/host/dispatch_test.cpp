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

#include "dispatch_cases.h"
#include "registry.h"

namespace cuflash::test {
namespace {

std::string golden_path;
bool update_golden = false;

// "1..64 fast, 65..256 scalar": the choice for every head_dim.
template <class Problem>
std::string choices(
    cuflashDevice_t where, const Device& device, cuflashDataType_t dtype, const Variant<ParamsOf<Problem>>& variant
) {
  constexpr int32_t kMaxHeadDim = 256;
  std::ostringstream text;
  std::string current;
  int32_t first = 1;
  for (int32_t head_dim = 1; head_dim <= kMaxHeadDim + 1; ++head_dim) {
    const std::string chosen =
        head_dim > kMaxHeadDim ? ""
                               : first_that_accepts(dispatch_problem<Problem>(where, dtype, head_dim, variant), device);
    if (head_dim == 1) current = chosen;
    if (chosen == current) continue;
    text << (first == 1 ? "" : ", ") << first << ".." << head_dim - 1 << " " << current;
    first = head_dim;
    current = chosen;
  }
  return text.str();
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
