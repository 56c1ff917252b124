// SPDX-License-Identifier: MIT
// What a run prints and what it records. Google Benchmark's own context is left out: it holds the machine's name and
// describes the CPU; ours describes the GPU. Names are as registered, without "/iterations:1/manual_time".
#pragma once

#include <vector>

#include <benchmark/benchmark.h>

#include "context.h"

namespace cuflash::bench {

// One line per benchmark on stdout.
class TableReporter : public benchmark::BenchmarkReporter {
 public:
  explicit TableReporter(RunContext context) : context_(std::move(context)) {}
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

 private:
  RunContext context_;
  int name_width_ = 0;
};

// Google Benchmark's JSON.
class RecordReporter : public benchmark::JSONReporter {
 public:
  explicit RecordReporter(RunContext context) : context_(std::move(context)) {}
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

 private:
  RunContext context_;
};

}  // namespace cuflash::bench
