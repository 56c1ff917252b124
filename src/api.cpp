// SPDX-License-Identifier: MIT
// The exported functions: import the params, ask for a selection, act on it.
#include "cuflash/cuflash.h"

#include <cstring>

#include "build_info.h"
#include "device.h"
#include "registry.h"
#include "validate.h"

namespace cuflash {
namespace {

template <class ParamsT>
struct ProblemOf;
template <>
struct ProblemOf<cuflashForwardParams_t> {
  using Type = ForwardProblem;
};
template <>
struct ProblemOf<cuflashBackwardParams_t> {
  using Type = BackwardProblem;
};

// A call from its params to the kernel that serves it: the same path for run, size query, explain and preload.
template <class ParamsT>
struct Request {
  using Problem = typename ProblemOf<ParamsT>::Type;

  Problem problem{};
  Device device{};
  Selection<Problem> selection{};

  Status read(const ParamsT* caller, Pointers pointers) {
    ParamsT params;
    CUFLASH_TRY(import_params(caller, &params));
    return validate(params, pointers, &problem);
  }

  Status find_device() { return problem.device == CUFLASH_DEVICE_HOST ? Status() : current_device(&device); }

  Status resolve() {
    CUFLASH_TRY(find_device());
    return select(problem, device, &selection);
  }

  Status launch(const LaunchContext& context) { return selection.family->launch(problem, selection.plan, context); }
};

template <class ParamsT>
Status run(const ParamsT* params, void* workspace, size_t workspace_size, cudaStream_t stream) {
  Request<ParamsT> request;
  CUFLASH_TRY(request.read(params, Pointers::kRequired));
  if (request.problem.empty) return Status();
  CUFLASH_TRY(request.resolve());
  CUFLASH_TRY(
      validate_workspace(request.problem.memory, workspace, workspace_size, request.selection.plan.workspace_bytes)
  );
  return request.launch({workspace, stream, LaunchMode::kRun});
}

template <class ParamsT>
Status get_workspace_size(const ParamsT* params, size_t* workspace_size) {
  CUFLASH_REQUIRE(workspace_size != nullptr, "workspace_size must not be NULL");
  Request<ParamsT> request;
  CUFLASH_TRY(request.read(params, Pointers::kOptional));
  if (!request.problem.empty) CUFLASH_TRY(request.resolve());
  *workspace_size = request.selection.plan.workspace_bytes;
  return Status();
}

template <class ParamsT>
Status explain_call(const ParamsT* params, char* buffer, size_t buffer_size, size_t* required_size) {
  if (required_size != nullptr) *required_size = 1;
  CUFLASH_REQUIRE(buffer != nullptr || buffer_size == 0, "buffer must not be NULL: buffer_size is %zu", buffer_size);
  TextWriter out(buffer, buffer_size);
  Request<ParamsT> request;
  CUFLASH_TRY(request.read(params, Pointers::kOptional));
  if (!request.problem.empty) CUFLASH_TRY(request.find_device());
  explain(request.problem, request.device, out);
  if (required_size != nullptr) *required_size = out.length() + 1;
  return request.problem.empty ? Status() : request.resolve();
}

template <class ParamsT>
Status preload(const ParamsT* params) {
  Request<ParamsT> request;
  CUFLASH_TRY(request.read(params, Pointers::kOptional));
  if (request.problem.empty) return Status();
  CUFLASH_TRY(request.resolve());
  return request.launch({nullptr, nullptr, LaunchMode::kPreload});
}

template <class Problem>
void describe(const KernelFamily<Problem>& family, cuflashKernelInfo_t* info) {
  const Support& support = family.support;
  const size_t struct_size = info->struct_size;
  std::memset(static_cast<void*>(info), 0, struct_size);  // a later caller's struct may be larger
  info->struct_size = struct_size;
  info->name = family.name;
  info->architectures = support.architectures;
  info->operation = Problem::kOperation;
  info->device = support.device;
  info->min_sm = support.min_sm;
  info->max_sm = support.max_sm;
  info->dtypes = support.dtypes;
  info->features = support.features;
  info->max_head_dim = support.max_head_dim;
}

Status get_kernel_info(int32_t index, cuflashKernelInfo_t* info) {
  const auto forward = families<ForwardProblem>();
  const auto backward = families<BackwardProblem>();
  CUFLASH_REQUIRE(info != nullptr, "info must not be NULL");
  CUFLASH_TRY(check_struct_size<cuflashKernelInfo_t>("info", info->struct_size));
  CUFLASH_REQUIRE(
      index >= 0 && index < cuflashGetKernelCount(),
      "index (%d) must be at least 0 and below cuflashGetKernelCount() (%d)",
      index,
      cuflashGetKernelCount()
  );
  const auto i = static_cast<size_t>(index);
  if (i < forward.size()) {
    describe(*forward[i], info);
  } else {
    describe(*backward[i - forward.size()], info);
  }
  return Status();
}

}  // namespace
}  // namespace cuflash

extern "C" {

int32_t cuflashGetVersion(void) { return CUFLASH_VERSION; }

const char* cuflashGetBuildInfo(void) { return cuflash::kBuildInfo; }

cuflashStatus_t cuflashForwardParamsInit(cuflashForwardParams_t* params, size_t struct_size) {
  return cuflash::init_params(params, struct_size).code();
}

cuflashStatus_t cuflashBackwardParamsInit(cuflashBackwardParams_t* params, size_t struct_size) {
  return cuflash::init_params(params, struct_size).code();
}

cuflashStatus_t cuflashForwardGetWorkspaceSize(const cuflashForwardParams_t* params, size_t* workspace_size) {
  return cuflash::get_workspace_size(params, workspace_size).code();
}

cuflashStatus_t cuflashBackwardGetWorkspaceSize(const cuflashBackwardParams_t* params, size_t* workspace_size) {
  return cuflash::get_workspace_size(params, workspace_size).code();
}

cuflashStatus_t cuflashForward(
    const cuflashForwardParams_t* params, void* workspace, size_t workspace_size, cuflashStream_t stream
) {
  return cuflash::run(params, workspace, workspace_size, stream).code();
}

cuflashStatus_t cuflashBackward(
    const cuflashBackwardParams_t* params, void* workspace, size_t workspace_size, cuflashStream_t stream
) {
  return cuflash::run(params, workspace, workspace_size, stream).code();
}

cuflashStatus_t cuflashForwardExplain(
    const cuflashForwardParams_t* params, char* buffer, size_t buffer_size, size_t* required_size
) {
  return cuflash::explain_call(params, buffer, buffer_size, required_size).code();
}

cuflashStatus_t cuflashBackwardExplain(
    const cuflashBackwardParams_t* params, char* buffer, size_t buffer_size, size_t* required_size
) {
  return cuflash::explain_call(params, buffer, buffer_size, required_size).code();
}

cuflashStatus_t cuflashForwardPreload(const cuflashForwardParams_t* params) { return cuflash::preload(params).code(); }

cuflashStatus_t cuflashBackwardPreload(const cuflashBackwardParams_t* params) {
  return cuflash::preload(params).code();
}

int32_t cuflashGetKernelCount(void) {
  return static_cast<int32_t>(
      cuflash::families<cuflash::ForwardProblem>().size() + cuflash::families<cuflash::BackwardProblem>().size()
  );
}

cuflashStatus_t cuflashGetKernelInfo(int32_t index, cuflashKernelInfo_t* info) {
  return cuflash::get_kernel_info(index, info).code();
}

const char* cuflashGetStatusString(cuflashStatus_t status) { return cuflash::status_name(status); }

const char* cuflashGetLastErrorMessage(void) { return cuflash::last_error_message(); }

}  // extern "C"
