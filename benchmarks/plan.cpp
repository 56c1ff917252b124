// SPDX-License-Identifier: MIT
#include "plan.h"

#include <algorithm>

#include "attention.h"
#include "baseline_naive.h"
#include "case_sets.h"
#include "failure.h"

namespace cuflash::bench {
namespace {

const std::vector<Temperature> kColdOnly = {Temperature::kCold};
const std::vector<Temperature> kHotOnly = {Temperature::kHot};  // nothing flushes the host's caches

std::string gib(int64_t bytes) { return std::to_string((bytes + (int64_t{1} << 30) - 1) >> 30) + " GiB"; }

std::string why_not_naive(const Lab& lab, const Case& c) {
  if (!lab.gpu) return "no GPU: " + lab.no_gpu_reason;
  if (!lab.cublas) return lab.no_cublas_reason;
  const auto needed = naive_workspace_bytes(c) + static_cast<int64_t>(minimum_bytes(c));
  const auto usable = static_cast<int64_t>(lab.gpu->memory_bytes / 10 * 9);
  if (needed > usable) return "its score matrices need " + gib(needed) + " of GPU memory";
  if (int64_t{c.batch} * c.num_heads * c.seqlen_q > INT32_MAX) return "more rows than a grid has blocks";
  return "";
}

std::string why_not_library(const Case& c, const Kernel& kernel) {
  size_t bytes = 0;
  cuflashStatus_t status = CUFLASH_STATUS_SUCCESS;
  if (c.operation == CUFLASH_OP_FORWARD) {
    const cuflashForwardParams_t params = forward_params(c, kernel.device, Layout::kBshd, kernel.name.c_str());
    status = cuflashForwardGetWorkspaceSize(&params, &bytes);
  } else {
    const cuflashBackwardParams_t params = backward_params(c, kernel.device, Layout::kBshd, kernel.name.c_str());
    status = cuflashBackwardGetWorkspaceSize(&params, &bytes);
  }
  return status == CUFLASH_STATUS_SUCCESS ? "" : cuflashGetLastErrorMessage();
}

}  // namespace

std::vector<Kernel> known_kernels() {
  std::vector<Kernel> kernels;
  for (int32_t i = 0; i < cuflashGetKernelCount(); ++i) {
    cuflashKernelInfo_t info{};
    info.struct_size = sizeof(info);
    require(cuflashGetKernelInfo(i, &info), "cuflashGetKernelInfo");
    const bool known =
        std::any_of(kernels.begin(), kernels.end(), [&](const Kernel& k) { return k.name == info.name; });
    if (!known) kernels.push_back({info.name, info.device});
  }
  kernels.push_back({kNaive, CUFLASH_DEVICE_CUDA});
  return kernels;
}

std::vector<Kernel> wanted_kernels(const Lab& lab) {
  const std::vector<Kernel> known = known_kernels();
  std::vector<Kernel> wanted;
  const std::vector<std::string>& names = lab.options.kernels;
  if (std::find(names.begin(), names.end(), "all") != names.end()) return known;
  if (names.empty()) {
    const cuflashDevice_t device = lab.gpu ? CUFLASH_DEVICE_CUDA : CUFLASH_DEVICE_HOST;
    std::copy_if(known.begin(), known.end(), std::back_inserter(wanted), [&](const Kernel& k) {
      return k.device == device;
    });
    return wanted;
  }
  for (const std::string& name : names) {
    const auto kernel = std::find_if(known.begin(), known.end(), [&](const Kernel& k) { return k.name == name; });
    if (kernel == known.end()) {
      std::string message = "--kernel: \"" + name + "\" must be one of all";
      for (const Kernel& k : known) message += ", " + k.name;
      throw UsageError(message);
    }
    wanted.push_back(*kernel);
  }
  return wanted;
}

std::vector<Planned> all_benchmarks(const Lab& lab) {
  const std::vector<Temperature>& given = lab.options.temperatures;
  std::vector<Planned> benchmarks;
  for (const Kernel& kernel : wanted_kernels(lab)) {
    const bool on_host = kernel.device == CUFLASH_DEVICE_HOST;
    for (const Case& c : on_host ? host_cases(lab.options) : gpu_cases(lab.options)) {
      for (const Temperature temperature : on_host ? kHotOnly : given.empty() ? kColdOnly : given) {
        benchmarks.push_back({c, kernel, temperature, ""});
      }
    }
  }
  return benchmarks;
}

std::string why_not(const Lab& lab, const Kernel& kernel, const Case& c) {
  return kernel.name == kNaive ? why_not_naive(lab, c) : why_not_library(c, kernel);
}

std::vector<Planned> plan_benchmarks(const Lab& lab) {
  std::vector<Planned> benchmarks = all_benchmarks(lab);
  for (Planned& planned : benchmarks) planned.why_not = why_not(lab, planned.kernel, planned.problem);
  return benchmarks;
}

bool overhead_wanted(const Options& options) { return options.overhead.value_or(options.shapes.empty()); }

std::string explain(const Case& c, cuflashDevice_t device, const char* kernel) {
  char text[4096] = "";
  cuflashStatus_t status = CUFLASH_STATUS_SUCCESS;
  if (c.operation == CUFLASH_OP_FORWARD) {
    const cuflashForwardParams_t params = forward_params(c, device, Layout::kBshd, kernel);
    status = cuflashForwardExplain(&params, text, sizeof(text), nullptr);
  } else {
    const cuflashBackwardParams_t params = backward_params(c, device, Layout::kBshd, kernel);
    status = cuflashBackwardExplain(&params, text, sizeof(text), nullptr);
  }
  return text[0] != '\0' ? text
                         : std::string(cuflashGetStatusString(status)) + ": " + cuflashGetLastErrorMessage() + "\n";
}

}  // namespace cuflash::bench
