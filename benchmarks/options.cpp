// SPDX-License-Identifier: MIT
#include "options.h"

#include <charconv>
#include <string_view>

namespace cuflash::bench {

const char* const kUsage = R"(usage: cuflash_bench [options]

Measures libcuflash: forward and backward of every kernel, host overhead, and the ceilings to compare with.

What to measure (without any of these: every GPU kernel over FlashAttention's grid; the host kernel if there is no GPU)
  --quick               a small representative set, under a minute on a data-centre GPU
  --op LIST             of fwd, bwd, both, overhead
  --kernel LIST         of kernel names (see --list), naive (materialised baseline), all
  --dtype LIST          of fp32, fp16, bf16
  --head-dim LIST       of the grid: 64, 128, 256
  --seqlen LIST         of the grid: 512 ... 16384
  --causal, --full      masks; both if none is named (--shape: full)
  --window L,R          a window mask, -1 for unlimited
  --shape B,HQ,HK,SQ,SK,D[,DV]
                        this shape instead of the grid; may be repeated
  --cold, --hot         with L2 flushed before each call (default), or without

How
  --check               compare results with the host kernel, and report the error
  --samples N           samples of a call (default 20; fewer, but at least 3, if they would take too long)
  --max-seconds S       time for the samples of one benchmark (default 3, with --quick 1); a call that takes
                        longer is measured once
  --cublas PATH         cuBLAS library for naive and the matrix ceiling (default: as the loader finds libcublas.so)

What else
  --list                kernels and cases
  --dry-run             what would run or why not, and what the library's dispatch says of it
  --caps                GPU, library, kernels; with --shape also who would serve it
  --out FILE.json       write Google Benchmark's JSON
  --commit ID           commit to record (default: CUFLASH_COMMIT in the environment, else the one configured)
  --benchmark_...       passed on to Google Benchmark, --benchmark_filter=REGEX for example
  --help

Lists are separated by commas. Exit status: 0 all ran, 1 something failed or nothing could run, 2 wrong usage.
)";

namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t comma = text.find(',', begin);
    parts.emplace_back(text.substr(begin, comma - begin));
    if (comma == std::string_view::npos) return parts;
    begin = comma + 1;
  }
}

template <class Number>
Number to_number(const std::string& flag, const std::string& text, Number low, Number high) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    throw UsageError(
        flag + ": \"" + text + "\" must be a number from " + std::to_string(low) + " to " + std::to_string(high)
    );
  }
  return value;
}

std::vector<int32_t> to_integers(const std::string& flag, const std::string& text, int32_t low, int32_t high) {
  std::vector<int32_t> values;
  for (const std::string& part : split(text)) values.push_back(to_number<int32_t>(flag, part, low, high));
  return values;
}

cuflashDataType_t to_dtype(const std::string& text) {
  for (const cuflashDataType_t dtype : {CUFLASH_R_32F, CUFLASH_R_16F, CUFLASH_R_16BF}) {
    if (text == dtype_name(dtype)) return dtype;
  }
  throw UsageError("--dtype: \"" + text + "\" must be fp32, fp16 or bf16");
}

Shape to_shape(const std::string& text) {
  const std::vector<int32_t> n = to_integers("--shape", text, 1, INT32_MAX);
  if (n.size() != 6 && n.size() != 7) {
    throw UsageError("--shape: \"" + text + "\" must be B,HQ,HK,SQ,SK,D or B,HQ,HK,SQ,SK,D,DV");
  }
  return {n[0], n[1], n[2], n[3], n[4], n[5], n.size() == 7 ? n[6] : n[5]};
}

Mask to_window(const std::string& text) {
  const std::vector<int32_t> n = to_integers("--window", text, -1, INT32_MAX);
  if (n.size() != 2) throw UsageError("--window: \"" + text + "\" must be LEFT,RIGHT");
  return {CUFLASH_MASK_WINDOW, n[0], n[1]};
}

void add_dtypes(Options& options, const std::string& text) {
  for (const std::string& name : split(text)) options.dtypes.push_back(to_dtype(name));
}

void set_max_seconds(Options& options, const std::string& text) {
  options.max_seconds = to_number<double>("--max-seconds", text, 0.001, 3600.0);
}

void add_operations(Options& options, const std::string& text) {
  options.overhead = options.overhead.value_or(false);
  for (const std::string& name : split(text)) {
    if (name != "fwd" && name != "bwd" && name != "both" && name != "overhead") {
      throw UsageError("--op: \"" + name + "\" must be fwd, bwd, both or overhead");
    }
    if (name == "overhead") options.overhead = true;
    if (name == "fwd" || name == "both") options.operations.push_back(CUFLASH_OP_FORWARD);
    if (name == "bwd" || name == "both") options.operations.push_back(CUFLASH_OP_BACKWARD);
  }
}

struct Flag {
  std::string_view name;
  void (*set)(Options&, const std::string& value);
};

using Mode = Options::Mode;

// clang-format off
constexpr Flag kSwitches[] = {
    {"--help",     [](Options& o, const std::string&) { o.mode = Mode::kHelp; }},
    {"-h",         [](Options& o, const std::string&) { o.mode = Mode::kHelp; }},
    {"--list",     [](Options& o, const std::string&) { o.mode = Mode::kList; }},
    {"--dry-run",  [](Options& o, const std::string&) { o.mode = Mode::kDryRun; }},
    {"--caps",     [](Options& o, const std::string&) { o.mode = Mode::kCaps; }},
    {"--quick",    [](Options& o, const std::string&) { o.quick = true; }},
    {"--check",    [](Options& o, const std::string&) { o.check = true; }},
    {"--causal",   [](Options& o, const std::string&) { o.masks.push_back({CUFLASH_MASK_CAUSAL}); }},
    {"--full",     [](Options& o, const std::string&) { o.masks.push_back({CUFLASH_MASK_NONE}); }},
    {"--cold",     [](Options& o, const std::string&) { o.temperatures.push_back(Temperature::kCold); }},
    {"--hot",      [](Options& o, const std::string&) { o.temperatures.push_back(Temperature::kHot); }},
};

constexpr Flag kSettings[] = {
    {"--op",          add_operations},
    {"--kernel",      [](Options& o, const std::string& v) { for (auto& name : split(v)) o.kernels.push_back(name); }},
    {"--dtype",       add_dtypes},
    {"--head-dim",    [](Options& o, const std::string& v) { o.head_dims = to_integers("--head-dim", v, 1, 256); }},
    {"--seqlen",      [](Options& o, const std::string& v) { o.seqlens = to_integers("--seqlen", v, 1, INT32_MAX); }},
    {"--window",      [](Options& o, const std::string& v) { o.masks.push_back(to_window(v)); }},
    {"--shape",       [](Options& o, const std::string& v) { o.shapes.push_back(to_shape(v)); }},
    {"--samples",     [](Options& o, const std::string& v) { o.samples = to_number<int>("--samples", v, 3, 10000); }},
    {"--max-seconds", set_max_seconds},
    {"--cublas",      [](Options& o, const std::string& v) { o.cublas = v; }},
    {"--out",         [](Options& o, const std::string& v) { o.out = v; }},
    {"--commit",      [](Options& o, const std::string& v) { o.commit = v; }},
};
// clang-format on

const Flag* find(std::span<const Flag> flags, std::string_view name) {
  for (const Flag& flag : flags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

void check_combination(const Options& options) {
  if (!options.shapes.empty() && options.quick) throw UsageError("--shape and --quick exclude each other");
  if (!options.shapes.empty() && !options.head_dims.empty()) {
    throw UsageError("--shape names its head_dim itself: --head-dim selects from the grid");
  }
  if (!options.shapes.empty() && !options.seqlens.empty()) {
    throw UsageError("--shape names its lengths itself: --seqlen selects from the grid");
  }
  if (options.quick && !options.seqlens.empty())
    throw UsageError("--quick has its own lengths: --seqlen is of the grid");
  for (const Shape& shape : options.shapes) {
    if (shape.num_heads % shape.num_heads_k != 0) {
      throw UsageError(
          "--shape: HQ (" + std::to_string(shape.num_heads) + ") must be a multiple of HK (" +
          std::to_string(shape.num_heads_k) + ")"
      );
    }
  }
}

}  // namespace

Options parse_options(std::span<const char* const> args) {
  Options options;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string arg = args[i];
    if (arg.starts_with("--benchmark_")) {
      options.google_benchmark.push_back(arg);
      continue;
    }
    if (const Flag* flag = find(kSwitches, arg)) {
      flag->set(options, "");
      continue;
    }
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    const Flag* flag = find(kSettings, name);
    if (flag == nullptr) throw UsageError("unknown option \"" + arg + "\"; --help lists the options");
    if (equals == std::string::npos && i + 1 == args.size()) throw UsageError(name + " needs a value");
    const std::string value = equals != std::string::npos ? arg.substr(equals + 1) : args[++i];
    if (value.empty()) throw UsageError(name + " needs a value");
    flag->set(options, value);
  }
  check_combination(options);
  if (options.max_seconds == 0) options.max_seconds = options.quick ? 1.0 : 3.0;
  return options;
}

}  // namespace cuflash::bench
