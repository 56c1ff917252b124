// SPDX-License-Identifier: MIT
// flash3.h on the kernels of FlashAttention-3's public source, folder hopper/, without a framework. Includes its headers
// and holds nothing of it. build.sh compiles it, and the kernels of kInstances.
//
// What a call consists of is what the source's own interface launches for a dense problem: forward without splitting
// keys over blocks, backward with sums of dq in no fixed order.
#include "flash3.h"

#include <cuda_runtime.h>
#include <cutlass/numeric_types.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "flash.h"
#include "heuristics.h"
#include "tile_size.h"

namespace {

constexpr int kArchitecture = 90;
constexpr size_t kAlignment = 256;

struct Instance {
  bool bf16;
  int head_dim;
  void (*forward)(Flash_fwd_params&, cudaStream_t);
  void (*backward)(Flash_bwd_params&, cudaStream_t);
};

template <typename Element, int kHeadDim>
constexpr Instance instance() {
  return {
      std::is_same_v<Element, cutlass::bfloat16_t>,
      kHeadDim,
      run_mha_fwd_<kArchitecture, Element, kHeadDim, kHeadDim, false, false, false, false>,
      run_mha_bwd_<kArchitecture, Element, kHeadDim, false>,
  };
}

constexpr Instance kInstances[] = {
    instance<cutlass::bfloat16_t, 64>(),
    instance<cutlass::bfloat16_t, 128>(),
    instance<cutlass::bfloat16_t, 256>(),
    instance<cutlass::half_t, 128>(),
};

const Instance* find_instance(const Flash3Problem& p) {
  const auto fits = [&](const Instance& one) { return one.bf16 == (p.bf16 != 0) && one.head_dim == p.head_dim; };
  const auto* found = std::find_if(std::begin(kInstances), std::end(kInstances), fits);
  return found == std::end(kInstances) ? nullptr : found;
}

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, attribute, device);
  return value;
}

// Whether the source's interface would lay the query heads of a group into one tile: kernels that are not built here.
bool packs_group(const Flash3Problem& p) {
  const int rows = std::get<0>(tile_size_fwd_sm90(p.head_dim, p.head_dim, p.causal != 0, false));
  return p.heads != p.heads_k && should_pack_gqa(false, p.seqlen_q, p.heads / p.heads_k, rows);
}

struct Tile {
  int rows, keys;
};

// Of the backward kernels' launches: lengths in the workspace are multiples of it.
Tile backward_tile(const Flash3Problem& p) {
  switch (p.head_dim) {
    case 64: return {128, 128};
    case 128: return {p.causal ? 64 : 80, 128};
    default: return {64, 80};
  }
}

int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// Offsets of the parts of a backward call's workspace.
struct BackwardWorkspace {
  size_t row_sums, lse_log2, dq_sums, dq_semaphore, dk_sums, dv_sums, size;
  int seqlen_q, seqlen_k;  // rounded up to tiles

  explicit BackwardWorkspace(const Flash3Problem& p) {
    const Tile tile = backward_tile(p);
    seqlen_q = round_up(p.seqlen_q, tile.rows);
    seqlen_k = round_up(p.seqlen_k, tile.keys);
    const size_t rows = size_t(p.batch) * p.heads * seqlen_q;
    const size_t keys = p.heads == p.heads_k ? 0 : size_t(p.batch) * p.heads_k * seqlen_k;
    size_t end = 0;
    const auto place = [&](size_t elements) {
      const size_t begin = end;
      end += (4 * elements + kAlignment - 1) / kAlignment * kAlignment;
      return begin;
    };
    row_sums = place(rows);
    lse_log2 = place(rows);
    dq_sums = place(rows * p.head_dim);
    dq_semaphore = place(rows / tile.rows);
    dk_sums = place(keys * p.head_dim);
    dv_sums = place(keys * p.head_dim);
    size = end;
  }
};

// The fields that both operations have.
void describe(const Flash3Problem& p, Flash_fwd_params& params) {
  const int64_t row = int64_t(p.heads) * p.head_dim, row_k = int64_t(p.heads_k) * p.head_dim;
  params.q_ptr = p.q;
  params.k_ptr = p.k;
  params.v_ptr = p.v;
  params.o_ptr = p.o;
  params.softmax_lse_ptr = p.lse;
  params.q_row_stride = params.o_row_stride = row;
  params.k_row_stride = params.v_row_stride = row_k;
  params.q_head_stride = params.k_head_stride = params.v_head_stride = params.o_head_stride = p.head_dim;
  params.q_batch_stride = params.o_batch_stride = row * p.seqlen_q;
  params.k_batch_stride = params.v_batch_stride = row_k * p.seqlen_k;
  params.v_dim_stride = 1;

  params.b = params.b_k = p.batch;
  params.h = p.heads;
  params.h_k = p.heads_k;
  params.seqlen_q = p.seqlen_q;
  params.seqlen_k = p.seqlen_k;
  params.total_q = p.batch * p.seqlen_q;
  params.total_k = p.batch * p.seqlen_k;
  params.d = params.d_rounded = params.dv = params.dv_rounded = p.head_dim;

  params.scale_softmax = 1.0f / std::sqrt(float(p.head_dim));
  params.is_bf16 = p.bf16 != 0;
  params.is_causal = p.causal != 0;
  params.window_size_left = p.seqlen_k - 1;
  params.window_size_right = p.causal ? 0 : p.seqlen_q - 1;
  params.p_dropout = params.rp_dropout = 1.0f;  // the probability of keeping
  params.num_splits = 1;
  params.arch = kArchitecture;
  params.num_sm = device_attribute(cudaDevAttrMultiProcessorCount);
}

void run_forward(const Flash3Problem& p, const Instance& instance, cudaStream_t stream) {
  Flash_fwd_params params{};
  describe(p, params);
  if (p.causal) {  // tiles are handed out by a counter; without a mask they are not
    params.tile_count_semaphore = static_cast<int*>(p.workspace);
    cudaMemsetAsync(p.workspace, 0, sizeof(int), stream);
  }
  instance.forward(params, stream);
}

void run_backward(const Flash3Problem& p, const Instance& instance, cudaStream_t stream) {
  const BackwardWorkspace workspace(p);
  char* const begin = static_cast<char*>(p.workspace);
  Flash_bwd_params params{};
  describe(p, params);
  params.seqlen_q_rounded = workspace.seqlen_q;
  params.seqlen_k_rounded = workspace.seqlen_k;
  params.do_ptr = p.dout;
  params.dq_ptr = p.dq;
  params.dk_ptr = p.dk;
  params.dv_ptr = p.dv;
  params.do_row_stride = params.dq_row_stride = params.q_row_stride;
  params.dk_row_stride = params.dv_row_stride = params.k_row_stride;
  params.do_head_stride = params.dq_head_stride = params.dk_head_stride = params.dv_head_stride = p.head_dim;
  params.do_batch_stride = params.dq_batch_stride = params.q_batch_stride;
  params.dk_batch_stride = params.dv_batch_stride = params.k_batch_stride;

  params.dsoftmax_sum = begin + workspace.row_sums;
  params.softmax_lse_log2_ptr = begin + workspace.lse_log2;
  params.dq_accum_ptr = begin + workspace.dq_sums;
  params.dq_semaphore = reinterpret_cast<int*>(begin + workspace.dq_semaphore);
  if (p.heads != p.heads_k) {  // the heads of a group add to sums, which the kernels expect to be zero
    params.dk_accum_ptr = begin + workspace.dk_sums;
    params.dv_accum_ptr = begin + workspace.dv_sums;
    cudaMemsetAsync(params.dk_accum_ptr, 0, workspace.size - workspace.dk_sums, stream);
  }
  instance.backward(params, stream);
}

}  // namespace

const char* flash3_commit() { return FLASH3_COMMIT; }

const char* flash3_why_not(const Flash3Problem* problem) {
  const Flash3Problem& p = *problem;
  if (device_attribute(cudaDevAttrComputeCapabilityMajor) != 9) return "needs a GPU of compute capability 9.0";
  if (!find_instance(p)) return "not built for this dtype and head_dim";
  if (p.heads % p.heads_k != 0) return "heads is not a multiple of heads_k";
  if (p.causal && p.seqlen_q != p.seqlen_k) return "causal is measured with equal lengths only";
  if (packs_group(p)) return "not built with kernels that pack the heads of a group, which it would choose";
  return nullptr;
}

size_t flash3_workspace_size(const Flash3Problem* problem) {
  return problem->backward ? BackwardWorkspace(*problem).size : kAlignment;
}

int32_t flash3_run(const Flash3Problem* problem, void* stream) {
  const Instance* const instance = find_instance(*problem);
  if (!instance) return cudaErrorInvalidValue;
  if (problem->backward) {
    run_backward(*problem, *instance, static_cast<cudaStream_t>(stream));
  } else {
    run_forward(*problem, *instance, static_cast<cudaStream_t>(stream));
  }
  return cudaGetLastError();
}
