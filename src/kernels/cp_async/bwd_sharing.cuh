// SPDX-License-Identifier: MIT
// Warps that share keys in the backward pass, `split` of them: where the gradients of a warp's keys do not fit into its
// registers. Each computes the weights of its part of the step's queries and the gradients of its part of head_dim; weights pass
// through shared memory, which takes a barrier of these warps.
#pragma once

#include "kernels/cp_async/bwd_block.cuh"
#include "kernels/cp_async/bwd_products.cuh"
#include "kernels/cp_async/bwd_weights.cuh"

namespace cuflash::cp_async {

template <class T, int kRow, bool kPlain>
struct BwdSharingWarp {
  using Memory = BwdMemory<kRow>;
  using OwnTile = typename Memory::OwnTile;
  using StepTile = typename Memory::StepTile;
  using WeightTile = typename Memory::WeightTile;
  static constexpr BwdTile kTile = kBwdTiles[kRow];
  static constexpr int kDepth = kTile.head_dim / 16;
  static constexpr int kMTiles = kTile.warp_keys() / 16;
  static constexpr int kSplit = kTile.split;
  static constexpr int kSumTiles = kTile.head_dim / kSplit / 8;
  static constexpr int kPart = kTile.part;
  static_assert(!kTile.kv_in_registers);

  int key;     // its first one in the block
  int member;  // among those with the same keys
  LaneAddress<OwnTile> own_k, own_v;
  float dk[kMTiles][kSumTiles][4];
  float dv[kMTiles][kSumTiles][4];

  __device__ __forceinline__ explicit BwdSharingWarp(const Memory& memory) {
    const int warp = threadIdx.x / kWarpSize;
    key = warp / kSplit * kTile.warp_keys();
    member = warp % kSplit;
    own_k = down_first<OwnTile>(memory.k, key);
    own_v = down_first<OwnTile>(memory.v(), key);
    clear(dk);
    clear(dv);
  }

  __device__ __forceinline__ int sum_key() const { return key; }

  // Step i: ds to shared memory, and what it adds to dk and dv.
  __device__ __forceinline__ void add(
      const BwdArgs& args, const BwdState<T, kRow>& state, const Memory& memory, int i, bool edge, float factor
  ) {
    const BwdStep<T>& step = state.steps[i % 4];
    const int query = member * kPart;
    const int lane = threadIdx.x % kWarpSize;
    const uint32_t lane_weight = WeightTile::offset(key + lane / 4, query) + lane % 4 * 4u;
    uint32_t packed_p[kMTiles][kPart / 16][4] = {}, packed_ds[kMTiles][kPart / 16][4] = {};
    if (!edge || !step.mask().hides_all(key, kTile.warp_keys(), query, kPart)) {
      compute_weights(args, state, memory, i, edge, factor, packed_p, packed_ds);
    }
    store_weights(LaneAddress<WeightTile>{memory.ds(i) + lane_weight}, packed_ds);
    store_weights(LaneAddress<WeightTile>{memory.p() + lane_weight}, packed_p);
    sync_warps<kWarpSize * kSplit>(1 + threadIdx.x / kWarpSize / kSplit);
    if (edge && step.mask().hides_all(key, kTile.warp_keys(), 0, kTile.block_m)) return;
    const auto weights = [&](uint32_t tile) {
      return [&, at = down_first<WeightTile>(tile, key)](int k, uint32_t(&x)[kMTiles][4]) {
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) load_matrices(x[m], at.at(16 * m, 16 * k));
      };
    };
    const auto columns = [&](uint32_t tile) {
      return [at = down_first<StepTile>(tile, 0, member * 16)](int k, int j, uint32_t(&y)[4]) {
        load_matrices_transposed(y, at.at(16 * k, 16 * kSplit * j));
      };
    };
    add_product<T, kTile.block_m / 16>(dv, weights(memory.p()), columns(memory.dout(i)));
    add_product<T, kTile.block_m / 16>(dk, weights(memory.ds(i)), columns(memory.q(i)));
  }

  __device__ __forceinline__ void store(const BwdArgs& args, const BwdBlock& block) const {
    const Attention& a = args.attention;
    const Range rows = block.rows_of_keys(key, kTile.warp_keys());
    store_columns<T, kSplit>({args.dk, block.s.k, rows, block.at.head, a.head_dim}, member, dk, a.scale);
    store_columns<T, kSplit>({args.dv, block.s.k, rows, block.at.head, a.head_dim_v}, member, dv, 1.0f);
  }

  // Of the lane's part of its row i.
  __device__ __forceinline__ bool is_finite(int i) const { return row_is_finite(dk, i) && row_is_finite(dv, i); }

 private:
  // Of the warp's part of the queries.
  __device__ __forceinline__ void compute_weights(
      const BwdArgs& args,
      const BwdState<T, kRow>& state,
      const Memory& memory,
      int i,
      bool edge,
      float factor,
      uint32_t (&packed_p)[kMTiles][kPart / 16][4],
      uint32_t (&packed_ds)[kMTiles][kPart / 16][4]
  ) const {
    const Attention& a = args.attention;
    const BwdBlock& block = state.block;
    const BwdStep<T>& step = state.steps[i % 4];
    const StepStatistics<kTile.block_m>& statistics = state.statistics[i % 2];
    const int query = member * kPart;
    const int lane = threadIdx.x % kWarpSize;
    const int lane_query = query + lane % 4 * 2;
    float p[kMTiles][kPart / 8][4], ds[kMTiles][kPart / 8][4];
    float2 shift[kPart / 8];
#pragma unroll
    for (int n = 0; n < kPart / 8; ++n) shift[n] = statistics.shift_of_pair(lane_query + 8 * n);
    clear(p);
    start_dp(ds, statistics, lane_query);
    const auto own_rows = [](const LaneAddress<OwnTile>& from) {
      return [&](int k, uint32_t(&x)[kMTiles][4]) {
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) load_matrices(x[m], from.at(16 * m, 16 * k));
      };
    };
    const auto step_rows = [](uint32_t tile, int first) {
      return [from = along_first<StepTile>(tile, first)](int k, int j, uint32_t(&y)[4]) {
        load_matrices(y, from.at(16 * j, 16 * k));
      };
    };
    add_product<T, kDepth>(p, own_rows(own_k), step_rows(memory.q(i), query));
    add_product<T, kDepth>(ds, own_rows(own_v), step_rows(memory.dout(i), query));
    const auto shift_of = [&](int, int n, int e) { return e == 0 ? shift[n].x : shift[n].y; };
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      const int row = key + 16 * m + lane / 4;
      if constexpr (!kPlain) {
        const int64_t distance = int64_t{step.begin()} + lane_query + block.s.offset - block.own.begin - row;
        apply_score_backward(p[m], ds[m], a, alibi_slope(a, block.at.batch, step.head()), static_cast<float>(distance));
      }
      exponentiate(p[m], factor, shift_of);
      if (edge) {
        cap_weights(p[m]);
        hide_pairs(p[m], shift_of, step.mask(), block.own_count(), row, lane_query);
        hide_pairs(ds[m], shift_of, step.mask(), block.own_count(), row, lane_query);
      }
      weigh(ds[m], p[m]);
      pack_operands<T>(packed_p[m], p[m]);
      pack_operands<T>(packed_ds[m], ds[m]);
    }
  }
};

}  // namespace cuflash::cp_async
