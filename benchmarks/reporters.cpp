// SPDX-License-Identifier: MIT
#include "reporters.h"

#include <cstdio>
#include <ostream>
#include <string>

namespace cuflash::bench {
namespace {

using Run = benchmark::BenchmarkReporter::Run;

std::string plain_name(const Run& run) {
  benchmark::BenchmarkName name = run.run_name;
  name.iterations.clear();
  name.time_type.clear();
  return name.str();
}

// A JSON string. Control characters do not occur in a context.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

struct Column {
  const char* counter;
  int width;
  int decimals;  // -1: scientific
};

constexpr Column kColumns[] = {
    {"samples", 8, 0},
    {"TFLOP/s", 9, 3},
    {"%matmul", 8, 1},
    {"GB/s", 9, 2},
    {"%copy", 7, 1},
    {"rel_error", 10, -1},
    {"max_error", 10, -1},
    {"empty_launch_us", 16, 3},
    {"on_top_us", 10, 3},
};

}  // namespace

bool TableReporter::ReportContext(const Context& context) {
  for (const auto& [name, value] : context_) std::printf("%s: %s\n", name.c_str(), value.c_str());
  name_width_ = static_cast<int>(context.name_field_width);
  std::printf("\n%-*s %11s   ", name_width_, "benchmark", "median");
  for (const Column& column : kColumns) std::printf(" %*s", column.width, column.counter);
  std::printf("\n");
  return true;
}

void TableReporter::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (run.counters.find("samples") == run.counters.end()) {  // it failed, and has said why
      std::printf("%-*s failed\n", name_width_, plain_name(run).c_str());
      continue;
    }
    const char* unit = benchmark::GetTimeUnitString(run.time_unit);
    std::printf("%-*s %11.3f %-2s", name_width_, plain_name(run).c_str(), run.GetAdjustedRealTime(), unit);
    for (const Column& column : kColumns) {
      const auto counter = run.counters.find(column.counter);
      if (counter == run.counters.end()) {
        std::printf(" %*s", column.width, "");
      } else if (column.decimals < 0) {
        std::printf(" %*.1e", column.width, counter->second.value);
      } else {
        std::printf(" %*.*f", column.width, column.decimals, counter->second.value);
      }
    }
    std::printf(" %s\n", run.report_label.c_str());
  }
  std::fflush(stdout);
}

bool RecordReporter::ReportContext(const Context&) {
  std::ostream& out = GetOutputStream();
  out << "{\n  \"context\": {\n";
  const char* separator = "";
  for (const auto& [name, value] : context_) {
    out << separator << "    " << quoted(name) << ": " << quoted(value);
    separator = ",\n";
  }
  out << "\n  },\n  \"benchmarks\": [\n";
  return true;
}

void RecordReporter::ReportRuns(const std::vector<Run>& runs) {
  std::vector<Run> renamed = runs;
  for (Run& run : renamed) {
    run.run_name.iterations.clear();
    run.run_name.time_type.clear();
  }
  JSONReporter::ReportRuns(renamed);
}

}  // namespace cuflash::bench
