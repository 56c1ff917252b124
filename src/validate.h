// SPDX-License-Identifier: MIT
// From the caller's parameters to a problem, or a sentence that names the argument, its value and the rule.
#pragma once

#include "problem.h"
#include "status.h"

namespace cuflash {

// What a call is going to do with the data pointers: a size query and a dry run take none of them.
enum class Pointers { kOptional, kRequired };

// Copies a caller's struct of any known or later size; absent fields are 0. ParamsT: cuflash{Forward,Backward}Params_t.
template <class ParamsT>
Status import_params(const ParamsT* caller, ParamsT* params);

// Sets *params to its defaults, as a caller whose struct has `struct_size` bytes sees it.
template <class ParamsT>
Status init_params(ParamsT* params, size_t struct_size);

Status validate(const cuflashForwardParams_t& params, Pointers pointers, ForwardProblem* problem);
Status validate(const cuflashBackwardParams_t& params, Pointers pointers, BackwardProblem* problem);

// workspace against what the plan needs.
Status validate_workspace(const void* workspace, size_t size, size_t needed);

}  // namespace cuflash
