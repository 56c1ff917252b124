// SPDX-License-Identifier: MIT
#include "compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace cuflash::test {
namespace {

constexpr const char* kBufferNames[kNumBuffers] = {
    "q",
    "k",
    "v",
    "o",
    "lse",
    "dout",
    "dlse",
    "dq",
    "dk",
    "dv",
    "cu_seqlens_q",
    "cu_seqlens_k",
    "seqused_q",
    "seqused_k",
    "alibi_slopes"};

// The largest ratio of error to allowed error, with its place.
struct Worst {
  double ratio = 1.0;
  std::string text;

  void note(
      const char* tensor,
      size_t entry,
      int32_t head,
      int32_t row,
      int32_t element,
      double got,
      double expected,
      double allowed
  ) {
    // First of all NaN and infinities must be in the same places; they are worse than any error.
    const bool anomaly = std::isnan(got) != std::isnan(expected) || std::isinf(got) != std::isinf(expected) ||
                         (std::isinf(got) && got != expected);
    double now = 0;
    if (anomaly) {
      now = HUGE_VAL;
    } else if (std::isfinite(got) && !(std::isfinite(allowed) && std::fabs(got - expected) <= allowed)) {
      // An allowance that is NaN or infinite would accept anything: with a finite value it is a fault of the harness.
      now = allowed > 0 && std::isfinite(allowed) ? std::fabs(got - expected) / allowed : HUGE_VAL;
    }
    if (!(now > ratio)) return;
    ratio = now;
    char line[256];
    std::snprintf(
        line,
        sizeof(line),
        "%s[batch %zu, head %d, row %d, element %d] is %.9g, expected %.9g, allowed error %.3g",
        tensor,
        entry,
        head,
        row,
        element,
        got,
        expected,
        allowed
    );
    text = line;
  }
};

template <class Visit>
void for_each_row(const Side& side, int32_t heads, Visit visit) {
  for (size_t entry = 0; entry < side.entries.size(); ++entry) {
    for (int32_t head = 0; head < heads; ++head) {
      for (int32_t row = 0; row < side.entries[entry].length; ++row) visit(entry, head, row);
    }
  }
}

size_t row_offset(const Scenario& scenario, const View& view, const Rows& rows, int32_t row, int32_t head) {
  const auto element = static_cast<size_t>(view.offset(rows.batch, rows.first + row, head));
  return scenario.geometry.segment(view.buffer).offset + element * size_of(scenario.c.dtype);
}

bool writes_lse(const Case& c) { return c.op == Op::kForward && c.lse; }

size_t lse_offset(const Scenario& scenario, size_t entry, int32_t head, int32_t row) {
  const int64_t index = lse_index(scenario.c, scenario.geometry.q, static_cast<int32_t>(entry), head, row);
  return scenario.geometry.segment(Buffer::kLse).offset + static_cast<size_t>(index) * sizeof(float);
}

void copy_bytes(const std::vector<std::byte>& from, size_t offset, size_t bytes, std::vector<std::byte>* to) {
  std::memcpy(to->data() + offset, from.data() + offset, bytes);
}

std::string describe_offset(const Geometry& geometry, size_t offset) {
  std::string nearest = "the first buffer";
  int64_t distance = 0;
  for (size_t i = 0; i < kNumBuffers; ++i) {
    const Segment& segment = geometry.segments[i];
    if (segment.bytes == 0 || segment.offset > offset + kRedZoneBytes / 2) continue;
    nearest = kBufferNames[i];
    distance = static_cast<int64_t>(offset) - static_cast<int64_t>(segment.offset);
    if (offset < segment.offset + segment.bytes + kRedZoneBytes / 2) break;
  }
  return "byte " + std::to_string(distance) + " of the buffer of " + nearest +
         " changed, which the call must not write";
}

}  // namespace

std::string compare_values(const Scenario& scenario, const Reference& reference, const std::vector<std::byte>& image) {
  Worst worst;
  const DType dtype = scenario.c.dtype;
  for_each_output(
      scenario,
      reference,
      [&](const char* name, const View& view, const Side& side, const Expected& expected) {
        for_each_row(side, view.heads, [&](size_t entry, int32_t head, int32_t row) {
          const std::byte* got = image.data() + row_offset(scenario, view, side.entries[entry], row, head);
          const auto index = static_cast<size_t>(expected_row(side, view.heads, entry, head, row));
          const double* value = expected.value.data() + index * static_cast<size_t>(view.dim);
          for (int32_t e = 0; e < view.dim; ++e) {
            const double element = load(dtype, got + static_cast<size_t>(e) * size_of(dtype));
            worst.note(name, entry, head, row, e, element, value[e], expected.allowed[index]);
          }
        });
      }
  );
  if (writes_lse(scenario.c)) {
    const Side& side = scenario.geometry.q;
    for_each_row(side, scenario.c.heads, [&](size_t entry, int32_t head, int32_t row) {
      const double got = load(DType::kFp32, image.data() + lse_offset(scenario, entry, head, row));
      const auto index = static_cast<size_t>(expected_row(side, scenario.c.heads, entry, head, row));
      worst.note("lse", entry, head, row, 0, got, reference.lse.value[index], reference.lse.allowed[index]);
    });
  }
  return worst.text;
}

Vacuity vacuity_of(const Expected& expected, DType dtype) {
  Vacuity vacuity;
  for (size_t row = 0; row < expected.allowed.size(); ++row) {
    const auto* value = expected.value.data() + row * static_cast<size_t>(expected.dim);
    double largest = 0;
    for (int32_t e = 0; e < expected.dim; ++e) {
      if (std::isfinite(value[e])) largest = std::max(largest, std::fabs(value[e]));
    }
    if (round_to(dtype, static_cast<float>(largest)) == 0) continue;
    ++vacuity.rows;
    vacuity.vacuous += expected.allowed[row] < largest ? 0 : 1;
  }
  return vacuity;
}

std::vector<std::byte> results_only(const Scenario& scenario, const std::vector<std::byte>& image) {
  std::vector<std::byte> results = scenario.image;
  const Reference unused;
  for_each_output(scenario, unused, [&](const char*, const View& view, const Side& side, const Expected&) {
    for_each_row(side, view.heads, [&](size_t entry, int32_t head, int32_t row) {
      const size_t bytes = static_cast<size_t>(view.dim) * size_of(scenario.c.dtype);
      copy_bytes(image, row_offset(scenario, view, side.entries[entry], row, head), bytes, &results);
    });
  });
  if (writes_lse(scenario.c)) {
    for_each_row(scenario.geometry.q, scenario.c.heads, [&](size_t entry, int32_t head, int32_t row) {
      copy_bytes(image, lse_offset(scenario, entry, head, row), sizeof(float), &results);
    });
  }
  return results;
}

std::string compare_guards(const Scenario& scenario, const std::vector<std::byte>& image) {
  const std::vector<std::byte> allowed = results_only(scenario, image);
  const auto [changed, unused] = std::mismatch(image.begin(), image.end(), allowed.begin());
  if (changed == image.end()) return "";
  return describe_offset(scenario.geometry, static_cast<size_t>(changed - image.begin()));
}

}  // namespace cuflash::test
