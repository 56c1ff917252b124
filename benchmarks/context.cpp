// SPDX-License-Identifier: MIT
#include "context.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "bench_config.h"
#include "case_sets.h"
#include "failure.h"
#include "plan.h"

namespace cuflash::bench {
namespace {

std::string commit(const Options& options) {
  if (!options.commit.empty()) return options.commit;
  const char* environment = std::getenv("CUFLASH_COMMIT");
  return environment != nullptr && *environment != '\0' ? environment : kConfiguredCommit;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// Folders belong to a machine, not into a record: "--out=a/b.json" becomes "--out=b.json".
std::string without_folders(const std::string& arg) {
  const size_t slash = arg.rfind('/');
  if (slash == std::string::npos) return arg;
  const size_t equals = arg.find('=');
  const std::string flag = equals < slash ? arg.substr(0, equals + 1) : "";
  return flag + arg.substr(slash + 1);
}

std::string command(std::span<const char* const> args) {
  std::string line = "cuflash_bench";
  for (const char* arg : args) line.append(" ").append(without_folders(arg));
  return line;
}

struct FeatureName {
  int32_t bit;
  const char* name;
};

constexpr FeatureName kFeatures[] = {
    {CUFLASH_FEATURE_CAUSAL, "causal"},
    {CUFLASH_FEATURE_WINDOW, "window"},
    {CUFLASH_FEATURE_TOP_LEFT, "top_left"},
    {CUFLASH_FEATURE_GQA, "gqa"},
    {CUFLASH_FEATURE_VARLEN, "varlen"},
    {CUFLASH_FEATURE_SEQUSED, "seqused"},
    {CUFLASH_FEATURE_SOFTCAP, "softcap"},
    {CUFLASH_FEATURE_ALIBI, "alibi"},
    {CUFLASH_FEATURE_HEAD_DIM_V, "head_dim_v"},
    {CUFLASH_FEATURE_UNALIGNED, "unaligned"},
    {CUFLASH_FEATURE_NEGATIVE_SCALE, "negative_scale"},
    {CUFLASH_FEATURE_DLSE, "dlse"},
    {CUFLASH_FEATURE_DETERMINISTIC, "deterministic"},
};

std::string feature_names(int32_t features) {
  std::string names;
  for (const FeatureName& feature : kFeatures) {
    if ((features & feature.bit) != 0) names += std::string(" ") + feature.name;
  }
  return names.empty() ? " none" : names;
}

std::string dtype_names(int32_t dtypes) {
  std::string names;
  if (dtypes & CUFLASH_DTYPE_BIT_32F) names += " fp32";
  if (dtypes & CUFLASH_DTYPE_BIT_16F) names += " fp16";
  if (dtypes & CUFLASH_DTYPE_BIT_16BF) names += " bf16";
  return names;
}

void print_kernel(const cuflashKernelInfo_t& info) {
  std::printf("  %s/%s: ", operation_name(info.operation), info.name);
  if (info.device == CUFLASH_DEVICE_HOST) {
    std::printf("CPU");
  } else {
    std::printf("sm %d to %d, code for %s", info.min_sm, info.max_sm, info.architectures);
  }
  std::printf("; dtypes%s; head_dim to %d;", dtype_names(info.dtypes).c_str(), info.max_head_dim);
  std::printf(" features%s\n", feature_names(info.features).c_str());
}

void print_indented(const std::string& text) {
  std::printf("  ");
  for (size_t i = 0; i < text.size(); ++i) {
    std::putchar(text[i]);
    if (text[i] == '\n' && i + 1 < text.size()) std::printf("  ");
  }
}

}  // namespace

RunContext describe_run(const Lab& lab, std::span<const char* const> args) {
  RunContext context;
  if (lab.gpu) {
    context = describe_gpu(*lab.gpu, lab.nvml.get());
    context.push_back({"cublas", lab.cublas ? lab.cublas->version() : "none: " + lab.no_cublas_reason});
  } else {
    context.push_back({"gpu", "none: " + lab.no_gpu_reason});
  }
  context.push_back({"cpu_threads", std::to_string(std::thread::hardware_concurrency())});
  context.push_back({"cuda_toolkit", kCudaToolkit});
  context.push_back({"library", cuflashGetBuildInfo()});
  context.push_back({"commit", commit(lab.options)});
  context.push_back({"started", utc_now()});
  context.push_back({"command", command(args)});
  return context;
}

void print_caps(const Lab& lab) {
  std::printf("library: %s\n", cuflashGetBuildInfo());
  if (lab.gpu) {
    for (const auto& [name, value] : describe_gpu(*lab.gpu, lab.nvml.get())) {
      std::printf("%s: %s\n", name.c_str(), value.c_str());
    }
    std::printf("cublas: %s\n", lab.cublas ? lab.cublas->version().c_str() : lab.no_cublas_reason.c_str());
  } else {
    std::printf("gpu: none: %s\n", lab.no_gpu_reason.c_str());
  }
  std::printf("kernels, in order of preference:\n");
  for (int32_t i = 0; i < cuflashGetKernelCount(); ++i) {
    cuflashKernelInfo_t info{};
    info.struct_size = sizeof(info);
    require(cuflashGetKernelInfo(i, &info), "cuflashGetKernelInfo");
    print_kernel(info);
  }
  if (lab.options.shapes.empty()) return;
  for (const Case& c : gpu_cases(lab.options)) {
    const std::string name = std::string(operation_name(c.operation)) + " " + dtype_name(c.dtype) + " " + mask_name(c);
    for (const cuflashDevice_t device : {CUFLASH_DEVICE_CUDA, CUFLASH_DEVICE_HOST}) {
      std::printf(
          "%s %s on the %s:\n", name.c_str(), shape_name(c).c_str(), device == CUFLASH_DEVICE_HOST ? "host" : "GPU"
      );
      print_indented(explain(c, device, nullptr));
    }
  }
}

}  // namespace cuflash::bench
