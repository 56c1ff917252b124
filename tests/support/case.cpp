// SPDX-License-Identifier: MIT
#include "case.h"

#include <charconv>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace cuflash::test {
namespace {

template <class E>
struct Name {
  E value;
  std::string_view text;
};

constexpr Name<Op> kOpNames[] = {{Op::kForward, "fwd"}, {Op::kBackward, "bwd"}};
constexpr Name<DType> kDTypeNames[] = {{DType::kFp32, "fp32"}, {DType::kFp16, "fp16"}, {DType::kBf16, "bf16"}};
constexpr Name<Mask> kMaskNames[] = {{Mask::kNone, "none"}, {Mask::kCausal, "causal"}, {Mask::kWindow, "window"}};
constexpr Name<Align> kAlignNames[] = {{Align::kBottomRight, "bottom_right"}, {Align::kTopLeft, "top_left"}};
constexpr Name<Alibi> kAlibiNames[] = {{Alibi::kNone, "none"}, {Alibi::kPerHead, "head"}, {Alibi::kPerEntry, "batch"}};
constexpr Name<Layout> kLayoutNames[] = {
    {Layout::kBshd, "bshd"},
    {Layout::kBhsd, "bhsd"},
    {Layout::kPacked, "packed"},
    {Layout::kPadded, "padded"},
    {Layout::kBroadcast, "broadcast"},
    {Layout::kUnaligned, "unaligned"}};
constexpr Name<Distribution> kDistributionNames[] = {
    {Distribution::kNormal, "normal"},
    {Distribution::kLarge, "large"},
    {Distribution::kHuge, "huge"},
    {Distribution::kLowLse, "low_lse"},
    {Distribution::kOneHuge, "one_huge"},
    {Distribution::kLastHuge, "last_huge"},
    {Distribution::kHugeRow, "huge_row"},
    {Distribution::kRising, "rising"},
    {Distribution::kFalling, "falling"},
    {Distribution::kStepDown, "step_down"},
    {Distribution::kAlternating, "alternating"},
    {Distribution::kTies, "ties"},
    {Distribution::kEqual, "equal"},
    {Distribution::kEqualHuge, "equal_huge"},
    {Distribution::kBalanced, "balanced"},
    {Distribution::kDenormal, "denormal"},
    {Distribution::kZero, "zero"},
    {Distribution::kPositive, "positive"},
    {Distribution::kThousand, "thousand"},
    {Distribution::kBigValues, "big_values"},
    {Distribution::kSmallValues, "small_values"},
    {Distribution::kTinyGradients, "tiny_gradients"},
    {Distribution::kCancelling, "cancelling"}};

constexpr std::span<const Name<Op>> names_of(Op) { return kOpNames; }
constexpr std::span<const Name<DType>> names_of(DType) { return kDTypeNames; }
constexpr std::span<const Name<Mask>> names_of(Mask) { return kMaskNames; }
constexpr std::span<const Name<Align>> names_of(Align) { return kAlignNames; }
constexpr std::span<const Name<Alibi>> names_of(Alibi) { return kAlibiNames; }
constexpr std::span<const Name<Layout>> names_of(Layout) { return kLayoutNames; }
constexpr std::span<const Name<Distribution>> names_of(Distribution) { return kDistributionNames; }

// The only list of the fields: printing and parsing both walk it. The first nine are always printed.
constexpr int kAlwaysPrinted = 9;

template <class CaseT, class Visit>
void for_each_field(CaseT& c, Visit visit) {
  visit("op", c.op);
  visit("dtype", c.dtype);
  visit("b", c.batch);
  visit("h", c.heads);
  visit("hk", c.heads_k);
  visit("sq", c.seqlen_q);
  visit("sk", c.seqlen_k);
  visit("d", c.head_dim);
  visit("mask", c.mask);
  visit("dv", c.head_dim_v);
  visit("align", c.align);
  visit("wl", c.window_left);
  visit("wr", c.window_right);
  visit("scale", c.scale);
  visit("softcap", c.softcap);
  visit("alibi", c.alibi);
  visit("packed_q", c.packed_q);
  visit("packed_k", c.packed_k);
  visit("used_q", c.used_q);
  visit("used_k", c.used_k);
  visit("lengths_q", c.lengths_q);
  visit("lengths_k", c.lengths_k);
  visit("layout", c.layout);
  visit("lse", c.lse);
  visit("dlse", c.dlse);
  visit("det", c.deterministic);
  visit("dist", c.distribution);
  visit("geo", c.geometry_seed);
  visit("data", c.data_seed);
}

template <class T>
std::string print_value(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    for (const Name<T>& name : names_of(value)) {
      if (name.value == value) return std::string(name.text);
    }
    return "?";
  } else if constexpr (std::is_same_v<T, float>) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(value));
    return text;
  } else {
    return std::to_string(static_cast<int64_t>(value));
  }
}

std::string print_value(const std::vector<int32_t>& values) {
  std::string text;
  for (const int32_t value : values) {
    if (!text.empty()) text += ',';
    text += std::to_string(value);
  }
  return text;
}

template <class T>
bool parse_value(std::string_view text, T* value) {
  if constexpr (std::is_enum_v<T>) {
    for (const Name<T>& name : names_of(*value)) {
      if (name.text != text) continue;
      *value = name.value;
      return true;
    }
    return false;
  } else if constexpr (std::is_same_v<T, bool>) {
    *value = text == "1";
    return text == "0" || text == "1";
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    return error == std::errc() && end == text.data() + text.size();
  }
}

bool parse_value(std::string_view text, std::vector<int32_t>* values) {
  values->clear();
  while (!text.empty()) {
    const size_t comma = text.find(',');
    int32_t value = 0;
    if (!parse_value(text.substr(0, comma), &value)) return false;
    values->push_back(value);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return true;
}

bool parse_field(std::string_view key, std::string_view text, Case* c) {
  bool parsed = false;
  for_each_field(*c, [&](std::string_view name, auto& value) {
    if (name == key) parsed = parse_value(text, &value);
  });
  return parsed;
}

}  // namespace

std::string to_string(const Case& c) {
  std::vector<std::string> defaults;
  const Case default_case;
  for_each_field(default_case, [&](std::string_view, const auto& value) { defaults.push_back(print_value(value)); });

  std::string line;
  int index = 0;
  for_each_field(c, [&](std::string_view name, const auto& value) {
    const std::string text = print_value(value);
    if (index < kAlwaysPrinted || text != defaults[static_cast<size_t>(index)]) {
      if (!line.empty()) line += ' ';
      line.append(name).append("=").append(text);
    }
    ++index;
  });
  return line;
}

bool parse_case(std::string_view line, Case* c, std::string* error) {
  *c = Case();
  while (!line.empty()) {
    const size_t space = line.find(' ');
    const std::string_view word = line.substr(0, space);
    line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
    if (word.empty()) continue;
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || !parse_field(word.substr(0, equals), word.substr(equals + 1), c)) {
      *error = "not understood: \"" + std::string(word) + "\"";
      return false;
    }
  }
  return true;
}

Case case_of(std::string_view line) {
  Case c;
  std::string error;
  if (!parse_case(line, &c, &error)) throw std::invalid_argument(error);
  return c;
}

}  // namespace cuflash::test
