// SPDX-License-Identifier: MIT
// The benchmarks. Each measures by itself and gives Google Benchmark one iteration whose time is the median.
#pragma once

#include <vector>

#include "lab.h"
#include "plan.h"

namespace cuflash::bench {

// "ceiling/matmul/bf16" and "ceiling/copy": the rates that the GPU reaches in this run. They must be registered first.
void register_ceilings(Lab& lab, const std::vector<Planned>& planned);

// "overhead/call/scalar": host time of a call of one kernel beside that of an empty launch;
// "overhead/query/host": validation and selection alone.
void register_overheads(Lab& lab);

// "fwd/scalar/bf16/d128/causal/b4_h16_s4096/cold": those of planned that can run.
void register_attention(Lab& lab, const std::vector<Planned>& planned);

}  // namespace cuflash::bench
