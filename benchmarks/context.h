// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lab.h"

namespace cuflash::bench {

using RunContext = std::vector<std::pair<std::string, std::string>>;

// What a record must say to be repeated: GPU and clocks, library, commit, date, command line.
RunContext describe_run(const Lab& lab, std::span<const char* const> args);

// --caps: the GPU, the library, its kernels, and who would serve the shapes of the command line.
void print_caps(const Lab& lab);

}  // namespace cuflash::bench
