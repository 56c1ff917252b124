// SPDX-License-Identifier: MIT
// What each kernel serves, as Markdown, from the library's own list.
//   cuflash_support_matrix                                    prints the table of README.md
//   cuflash_support_matrix --check  --readme FILE --page FILE compares the files with what the library says
//   cuflash_support_matrix --update --readme FILE --page FILE writes them
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuflash/cuflash.h"

namespace {

struct Named {
  int32_t bit;
  const char* name;
  const char* meaning;
};

constexpr std::array kDTypes = {
    Named{CUFLASH_DTYPE_BIT_32F, "fp32", ""},
    Named{CUFLASH_DTYPE_BIT_16F, "fp16", ""},
    Named{CUFLASH_DTYPE_BIT_16BF, "bf16", ""},
};

constexpr std::array kFeatures = {
    Named{CUFLASH_FEATURE_CAUSAL, "causal", "causal mask"},
    Named{CUFLASH_FEATURE_WINDOW, "window", "sliding window, any left and right"},
    Named{CUFLASH_FEATURE_TOP_LEFT, "top_left", "top-left aligned masks and ALiBi"},
    Named{CUFLASH_FEATURE_GQA, "gqa", "fewer key heads than query heads"},
    Named{CUFLASH_FEATURE_VARLEN, "varlen", "packed sequences: `cu_seqlens_q`, `cu_seqlens_k`"},
    Named{CUFLASH_FEATURE_SEQUSED, "seqused", "shortened sequences: `seqused_q`, `seqused_k`"},
    Named{CUFLASH_FEATURE_SOFTCAP, "softcap", "softcap"},
    Named{CUFLASH_FEATURE_ALIBI, "alibi", "ALiBi slopes"},
    Named{CUFLASH_FEATURE_HEAD_DIM_V, "head_dim_v", "`head_dim_v` other than `head_dim`"},
    Named{CUFLASH_FEATURE_UNALIGNED, "unaligned", "addresses or strides that are no multiple of 16 bytes"},
    Named{CUFLASH_FEATURE_NEGATIVE_SCALE, "negative_scale", "negative `softmax_scale`"},
    Named{CUFLASH_FEATURE_DLSE, "dlse", "gradient of `softmax_lse`"},
    Named{CUFLASH_FEATURE_DETERMINISTIC, "deterministic", "bitwise repeatable gradients"},
};

constexpr int32_t kBackwardOnly = CUFLASH_FEATURE_DLSE | CUFLASH_FEATURE_DETERMINISTIC;
constexpr int32_t kNewestSm = 999;  // a kernel's max_sm where it has no upper end

// The two operations of one kernel.
struct Kernel {
  std::string name;
  std::optional<cuflashKernelInfo_t> forward;
  std::optional<cuflashKernelInfo_t> backward;

  const cuflashKernelInfo_t& any() const { return forward ? *forward : *backward; }
};

// In order of preference.
std::vector<Kernel> kernels() {
  std::vector<Kernel> all;
  for (int32_t index = 0; index < cuflashGetKernelCount(); ++index) {
    cuflashKernelInfo_t info{};
    info.struct_size = sizeof(info);
    if (cuflashGetKernelInfo(index, &info) != CUFLASH_STATUS_SUCCESS)
      throw std::runtime_error(cuflashGetLastErrorMessage());
    auto kernel = std::find_if(all.begin(), all.end(), [&](const Kernel& k) { return k.name == info.name; });
    if (kernel == all.end()) kernel = all.insert(all.end(), Kernel{info.name, {}, {}});
    (info.operation == CUFLASH_OP_FORWARD ? kernel->forward : kernel->backward) = info;
  }
  return all;
}

std::string version_of(int32_t sm) { return std::to_string(sm / 10) + "." + std::to_string(sm % 10); }

std::string quoted(const std::string& name) { return std::string("`").append(name).append("`"); }

std::string devices_of(const cuflashKernelInfo_t& info) {
  if (info.device == CUFLASH_DEVICE_HOST) return "CPU";
  std::string text = "GPU ";
  text.append(version_of(info.min_sm));
  if (info.max_sm >= kNewestSm) return text.append(" and later");
  return info.min_sm == info.max_sm ? text : text.append(" to ").append(version_of(info.max_sm));
}

std::string head_dims_of(const cuflashKernelInfo_t& info) {
  return std::string("1 to ").append(std::to_string(info.max_head_dim));
}

template <size_t kSize>
std::string names_in(const std::array<Named, kSize>& names, int32_t bits) {
  std::string text;
  for (const Named& named : names) {
    if ((bits & named.bit) != 0) text.append(text.empty() ? "" : " ").append(named.name);
  }
  return text.empty() ? "none" : text;
}

// "yes", the operation that has it alone, or "no".
std::string served(bool forward, bool backward, bool backward_only) {
  if (backward_only) return backward ? "yes" : "no";
  if (forward && backward) return "yes";
  if (forward) return "forward";
  return backward ? "backward" : "no";
}

template <class Cell>
void print_row(std::ostream& out, const std::string& title, const std::vector<Kernel>& all, const Cell& cell) {
  out << "| " << title << " |";
  for (const Kernel& kernel : all) out << " " << cell(kernel) << " |";
  out << "\n";
}

// Features down, kernels across.
std::string feature_table() {
  const std::vector<Kernel> all = kernels();
  const auto has = [](const std::optional<cuflashKernelInfo_t>& info, int32_t cuflashKernelInfo_t::*set, int32_t bit) {
    return info && ((*info).*set & bit) != 0;
  };
  std::ostringstream out;
  const auto print_set =
      [&](const std::string& title, int32_t cuflashKernelInfo_t::*set, int32_t bit, bool backward_only) {
        print_row(out, title, all, [&](const Kernel& k) {
          return served(has(k.forward, set, bit), has(k.backward, set, bit), backward_only);
        });
      };
  print_row(out, "", all, [](const Kernel& k) { return quoted(k.name); });
  print_row(out, "---", all, [](const Kernel&) { return "---"; });
  print_row(out, "runs on (compute capability)", all, [](const Kernel& k) { return devices_of(k.any()); });
  print_row(out, "operations", all, [](const Kernel& k) {
    if (k.forward && k.backward) return "forward, backward";
    return k.forward ? "forward" : "backward";
  });
  print_row(out, "`head_dim`, `head_dim_v`", all, [](const Kernel& k) { return head_dims_of(k.any()); });
  for (const Named& dtype : kDTypes) print_set(dtype.name, &cuflashKernelInfo_t::dtypes, dtype.bit, false);
  for (const Named& feature : kFeatures) {
    print_set(feature.meaning, &cuflashKernelInfo_t::features, feature.bit, (feature.bit & kBackwardOnly) != 0);
  }
  return out.str();
}

void print_order(std::ostream& out, std::optional<cuflashKernelInfo_t> Kernel::*operation, int32_t operation_features) {
  out << "| order | kernel | runs on | dtypes | head_dim | features not served |\n|---|---|---|---|---|---|\n";
  int position = 0;
  for (const Kernel& kernel : kernels()) {
    const auto& info = kernel.*operation;
    if (!info) continue;
    out << "| " << ++position << " | " << quoted(kernel.name) << " | " << devices_of(*info) << " | "
        << names_in(kDTypes, info->dtypes) << " | " << head_dims_of(*info) << " | "
        << names_in(kFeatures, operation_features & ~info->features) << " |\n";
  }
}

struct Gpu {
  int32_t sm;
  const char* name;
};
constexpr std::array kGpus = {
    Gpu{75, "Turing"},
    Gpu{80, "Ampere"},
    Gpu{86, "Ampere"},
    Gpu{89, "Ada"},
    Gpu{90, "Hopper"},
    Gpu{100, "Blackwell"},
    Gpu{120, "Blackwell"},
};

// Which kernels are asked on each GPU, in order.
void print_devices(std::ostream& out, std::optional<cuflashKernelInfo_t> Kernel::*operation) {
  const auto print_cells = [&](const std::string& title, const auto& runs_here) {
    out << "| " << title << " |";
    for (const Named& dtype : kDTypes) {
      std::string names;
      for (const Kernel& kernel : kernels()) {
        const auto& info = kernel.*operation;
        if (!info || (info->dtypes & dtype.bit) == 0 || !runs_here(*info)) continue;
        names.append(names.empty() ? "" : ", ").append(quoted(kernel.name));
      }
      out << " " << (names.empty() ? "none" : names) << " |";
    }
    out << "\n";
  };
  out << "| device | fp32 | fp16 | bf16 |\n|---|---|---|---|\n";
  for (const Gpu& gpu : kGpus) {
    print_cells(version_of(gpu.sm) + " (" + gpu.name + ")", [&](const cuflashKernelInfo_t& info) {
      return info.device == CUFLASH_DEVICE_CUDA && gpu.sm >= info.min_sm && gpu.sm <= info.max_sm;
    });
  }
  print_cells("host", [](const cuflashKernelInfo_t& info) { return info.device == CUFLASH_DEVICE_HOST; });
}

std::string dispatch_page() {
  constexpr int32_t kAllFeatures = 2 * CUFLASH_FEATURE_DETERMINISTIC - 1;
  std::ostringstream out;
  out << "# Which kernel serves what\n\n"
         "<!-- Written by cuflash_support_matrix --update from the library's own list, src/registry.cpp. Do not edit. "
         "-->\n\n"
         "A call runs the first kernel of the list that accepts it. A kernel is asked only if the binary holds code "
         "for the\n"
         "GPU; `cuflashGetBuildInfo()` says what a binary holds. `params.kernel` or the environment variable\n"
         "`CUFLASH_KERNEL` forces one by name; `cuflashForwardExplain()` and `cuflashBackwardExplain()` give every "
         "kernel's\n"
         "answer for a call. A kernel may refuse a call that the tables below allow: where its tiles do not fit into "
         "the\n"
         "shared memory of the GPU, bf16 where the GPU's tensor cores lack it (`wmma` on GPUs before 8.0), a\n"
         "`head_dim` or `head_dim_v` that is odd (`cp_async`) or no multiple of 8 (`sm90`), tensors whose strides are "
         "0\n"
         "or 2^40 bytes and more (`sm90`), and gradients of many short sequences (`sm90`). The choice for every GPU,\n"
         "dtype, feature and `head_dim` is frozen in\n"
         "[tests/golden/dispatch.txt](../tests/golden/dispatch.txt).\n\n";
  out << "## Forward\n\n";
  print_order(out, &Kernel::forward, kAllFeatures & ~kBackwardOnly);
  out << "\nKernels by device, in the order in which they are asked:\n\n";
  print_devices(out, &Kernel::forward);
  out << "\n## Backward\n\n";
  print_order(out, &Kernel::backward, kAllFeatures);
  out << "\nKernels by device, in the order in which they are asked:\n\n";
  print_devices(out, &Kernel::backward);
  out << "\n## Features\n\n"
         "What a call can ask for beyond plain attention over tensors that are aligned to 16 bytes.\n\n"
      << feature_table();
  return out.str();
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text)) throw std::runtime_error("cannot write " + path);
}

// The file with the block between the two marks replaced.
std::string with_block(const std::string& path, const std::string& text, const std::string& block) {
  const std::string begin = "<!-- support-matrix:begin -->\n", end = "<!-- support-matrix:end -->";
  const size_t first = text.find(begin), last = text.find(end);
  if (first == std::string::npos || last == std::string::npos || last < first) {
    throw std::runtime_error(path + " lacks the marks support-matrix:begin and support-matrix:end");
  }
  return text.substr(0, first + begin.size()) + block + text.substr(last);
}

struct Output {
  std::string path;
  std::string expected;
};

int check(const std::vector<Output>& outputs) {
  int differences = 0;
  for (const Output& output : outputs) {
    if (read_file(output.path) == output.expected) continue;
    std::fprintf(
        stderr, "%s is not what the library says: build the target update_support_matrix\n", output.path.c_str()
    );
    ++differences;
  }
  return differences == 0 ? 0 : 1;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(feature_table().c_str(), stdout);
    return 0;
  }
  const bool well_formed = arguments.size() == 5 && (arguments[0] == "--check" || arguments[0] == "--update") &&
                           arguments[1] == "--readme" && arguments[3] == "--page";
  if (!well_formed) {
    std::fprintf(stderr, "usage: cuflash_support_matrix [--check|--update --readme FILE --page FILE]\n");
    return 2;
  }
  const std::string &readme = arguments[2], &page = arguments[4];
  const std::vector<Output> outputs = {
      {readme, with_block(readme, read_file(readme), feature_table())}, {page, dispatch_page()}};
  if (arguments[0] == "--check") return check(outputs);
  for (const Output& output : outputs) write_file(output.path, output.expected);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuflash_support_matrix: %s\n", error.what());
    return 1;
  }
}
