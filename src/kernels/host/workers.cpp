// SPDX-License-Identifier: MIT
#include "kernels/host/workers.h"

#include <algorithm>

namespace cuflash::host {
namespace {

// Multiply-adds that take about a quarter of a millisecond: starting a thread takes less.
constexpr double kWorkPerThread = 1 << 20;

}  // namespace

int32_t num_workers(const Attention& a) {
  double pairs = 0;  // in floating point: a product of lengths may pass 2^63
  for (int32_t entry = 0; entry < a.batch; ++entry) {
    const Sequence s = sequence_of(a, entry);
    const auto window = static_cast<double>(a.window_left + a.window_right + 1);
    pairs += s.q.length * std::min<double>(s.k.length, window);
  }
  const double work = pairs * a.num_heads * (a.head_dim + a.head_dim_v);
  const double limit = std::max(1u, std::thread::hardware_concurrency());
  return static_cast<int32_t>(std::clamp(work / kWorkPerThread, 1.0, limit));
}

}  // namespace cuflash::host
