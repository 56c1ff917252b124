// SPDX-License-Identifier: MIT
// From the caller's parameters to a problem, or a sentence that names the argument, its value and the rule.
#pragma once

#include "problem.h"
#include "status.h"

namespace cuflash {

// What a call is going to do with the data pointers: a size query and a dry run take none of them.
enum class Pointers { kOptional, kRequired };

// A caller's struct may have any size that StructT has had, or a larger one of a later version.
template <class StructT>
Status check_struct_size(const char* what, size_t size);

// Copies a caller's struct of any known or later size; absent fields are 0. ParamsT: cuflash{Forward,Backward}Params_t.
template <class ParamsT>
Status import_params(const ParamsT* caller, ParamsT* params);

// Sets *params to its defaults, as a caller whose struct has `struct_size` bytes sees it.
template <class ParamsT>
Status init_params(ParamsT* params, size_t struct_size);

Status validate(const cuflashForwardParams_t& params, Pointers pointers, ForwardProblem* problem);
Status validate(const cuflashBackwardParams_t& params, Pointers pointers, BackwardProblem* problem);

// workspace against what the plan needs and against the other memory of the call.
Status validate_workspace(const MemoryRanges& memory, const void* workspace, size_t size, size_t needed);

}  // namespace cuflash
