// SPDX-License-Identifier: MIT
#include "text_writer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cuflash {
namespace {

const std::string kWhole = "batch=2 name=scalar end";

size_t write_parts(TextWriter& out) {
  out.print("batch=%d ", 2);
  out.print("%s", "");
  out.print("name=%s ", "scalar");
  out.print("end");
  return out.length();
}

TEST(TextWriterTest, CutsAtEverySizeAndCountsTheWhole) {
  for (size_t size = 0; size <= kWhole.size() + 3; ++size) {
    std::vector<char> buffer(kWhole.size() + 8, '#');
    TextWriter out(buffer.data(), size);
    EXPECT_EQ(write_parts(out), kWhole.size());
    if (size > 0) {
      EXPECT_EQ(std::string(buffer.data()), kWhole.substr(0, size - 1)) << "size " << size;
    }
    for (size_t i = size; i < buffer.size(); ++i) EXPECT_EQ(buffer[i], '#') << "size " << size << ", byte " << i;
  }
}

TEST(TextWriterTest, AnEmptyTextIsTerminated) {
  char buffer[4] = {'#', '#', '#', '#'};
  const TextWriter out(buffer, sizeof(buffer));
  EXPECT_STREQ(buffer, "");
  EXPECT_EQ(out.length(), 0u);
}

TEST(TextWriterTest, WithoutABufferItOnlyCounts) {
  TextWriter out(nullptr, 0);
  EXPECT_EQ(write_parts(out), kWhole.size());
}

}  // namespace
}  // namespace cuflash
