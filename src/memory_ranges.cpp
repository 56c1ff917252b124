// SPDX-License-Identifier: MIT
#include "memory_ranges.h"

namespace cuflash {
namespace {

bool inside(const MemoryRange& range, uintptr_t address) { return address >= range.first && address <= range.last; }

bool holds_an_end(const MemoryRange& range, const MemoryRange& other) {
  return range.dense && (inside(range, other.first) || inside(range, other.last));
}

}  // namespace

Status MemoryRanges::check() const {
  for (size_t i = 0; i < count_; ++i) {
    if (ranges_[i].is_output) CUFLASH_TRY(check_output(ranges_[i]));
  }
  return Status();
}

Status MemoryRanges::check_output(const MemoryRange& output) const {
  for (size_t i = 0; i < count_; ++i) {
    const MemoryRange& other = ranges_[i];
    if (&other == &output) continue;
    CUFLASH_REQUIRE(
        output.first != other.first && !holds_an_end(output, other) && !holds_an_end(other, output),
        "%s (%p) overlaps %s (%p): an output must not overlap an input, another output or the workspace",
        output.name,
        reinterpret_cast<const void*>(output.first),
        other.name,
        reinterpret_cast<const void*>(other.first)
    );
  }
  return Status();
}

}  // namespace cuflash
