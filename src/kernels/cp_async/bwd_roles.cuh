// SPDX-License-Identifier: MIT
// Warps of the backward pass that split the roles: a warp has the sums of one gradient, so it has room for more keys or more
// of head_dim, and what is read from shared memory meets more of them.
//
//              first half of the warps                second half
//   product    s = k q^T                              dp = v dout^T
//   weights    p, rounded, for dv and to ---------->  ds = p (dp - delta), rounded, to shared memory
//   sums       dv += p^T dout                         dk += ds^T q
//
// p passes to the partner, the warp of the other half with the same pairs, in the place of its ds. Softcap multiplies it by
// the slope of the score first.
#pragma once

#include <type_traits>

#include "kernels/cp_async/bwd_block.cuh"
#include "kernels/cp_async/bwd_products.cuh"
#include "kernels/cp_async/bwd_weights.cuh"

namespace cuflash::cp_async {

template <class T, int kRow, bool kPlain>
struct BwdRoleWarp {
  using Memory = BwdMemory<kRow>;
  using OwnTile = typename Memory::OwnTile;
  using StepTile = typename Memory::StepTile;
  using WeightTile = typename Memory::WeightTile;
  static constexpr BwdTile kTile = kBwdTiles[kRow];
  static constexpr int kRoleWarps = kTile.role_warps();
  static constexpr int kSplit = kTile.split;
  // By how many powers of two weights are larger than p until they have met dp, or dout: in fp16, small ones would lose bits
  // that ds needs.
  static constexpr int kRaised = std::is_same_v<T, __half> ? 14 : 0;
  static constexpr int kDepth = kTile.head_dim / 16;
  static constexpr int kPart = kTile.part;
  static constexpr int kWeightTiles = kTile.weight_keys() / 16;
  static constexpr int kMTiles = kTile.sum_keys() / 16;
  static constexpr int kSumTiles = kTile.head_dim / kSplit / 8;

  bool has_p;
  int number;  // in its role
  float sums[kMTiles][kSumTiles][4];

  __device__ __forceinline__ explicit BwdRoleWarp(const Memory&) {
    const int warp = threadIdx.x / kWarpSize;
    has_p = warp < kRoleWarps;
    number = warp % kRoleWarps;
    clear(sums);
  }

  // Of the block, the first key and of each step the first query of its weights, and the first key of its sums.
  __device__ __forceinline__ int weight_key() const { return number / kTile.query_warps() * kTile.weight_keys(); }
  __device__ __forceinline__ int query() const { return number % kTile.query_warps() * kPart; }
  __device__ __forceinline__ int sum_key() const { return number / kSplit * kTile.sum_keys(); }
  __device__ __forceinline__ int member() const { return number % kSplit; }

  // Step i: ds to shared memory, and what it adds to the gradient.
  __device__ __forceinline__ void add(
      const BwdArgs& args, const BwdState<T, kRow>& state, const Memory& memory, int i, bool edge, float factor
  ) {
    const BwdStep<T>& step = state.steps[i % 4];
    const int lane = threadIdx.x % kWarpSize;
    const uint32_t lane_weight = WeightTile::offset(weight_key() + lane / 4, query()) + lane % 4 * 4u;
    const LaneAddress<WeightTile> ds_at = {memory.ds(i) + lane_weight};
    const LaneAddress<WeightTile> p_at = {memory.p() + lane_weight};
    uint32_t packed[kWeightTiles][kPart / 16][4];
    float x[kWeightTiles][kPart / 8][4];
    clear(x);
    const auto own_rows = [from = down_first<OwnTile>(has_p ? memory.k : memory.v(), weight_key())](
                              int k, uint32_t(&y)[kWeightTiles][4]
                          ) {
#pragma unroll
      for (int m = 0; m < kWeightTiles; ++m) load_matrices(y[m], from.at(16 * m, 16 * k));
    };
    const auto step_rows = [from = along_first<StepTile>(has_p ? memory.q(i) : memory.dout(i), query())](
                               int k, int j, uint32_t(&y)[4]
                           ) { load_matrices(y, from.at(16 * j, 16 * k)); };
    add_product<T, kDepth>(x, own_rows, step_rows);
    if (has_p) {
      weigh_p(packed, x, args.attention, state, step, edge, factor, i, ds_at);
      if constexpr (kSplit > 1) store_weights(p_at, packed);
      arrive_warps<kTile.threads()>(kGiven);
    } else {
      sync_warps<kTile.threads()>(kGiven);
      weigh_ds(packed, x, state, step, edge, i, memory.ds(i));
      store_weights(ds_at, packed);
    }

    const uint32_t summed_rows = has_p ? memory.dout(i) : memory.q(i);
    const auto columns = [from = down_first<StepTile>(summed_rows, 0, member() * 16)](int k, int j, uint32_t(&y)[4]) {
      load_matrices_transposed(y, from.at(16 * k, 16 * kSplit * j));
    };
    if constexpr (kSplit > 1) sync_warps<kRoleWarps * kWarpSize>(has_p ? kWarpsWithP : kWarpsWithDs);
    if (edge && step.mask().hides_all(sum_key(), kTile.sum_keys(), 0, kTile.block_m)) return;
    if constexpr (kSplit == 1) {
      add_product<T, kPart / 16>(sums, from_registers(packed), columns);
    } else {
      const auto weights = [from = down_first<WeightTile>(has_p ? memory.p() : memory.ds(i), sum_key())](
                               int k, uint32_t(&y)[kMTiles][4]
                           ) {
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) load_matrices(y[m], from.at(16 * m, 16 * k));
      };
      add_product<T, kTile.block_m / 16>(sums, weights, columns);
    }
  }

  __device__ __forceinline__ void store(const BwdArgs& args, const BwdBlock& block) const {
    const Attention& a = args.attention;
    const Range rows = block.rows_of_keys(sum_key(), kTile.sum_keys());
    const HeadRows to = {has_p ? args.dv : args.dk, block.s.k, rows, block.at.head, has_p ? a.head_dim_v : a.head_dim};
    store_columns<T, kSplit>(to, member(), sums, has_p ? 1.0f / static_cast<float>(1 << kRaised) : a.scale);
  }

  // Of the lane's part of its row i.
  __device__ __forceinline__ bool is_finite(int i) const { return row_is_finite(sums, i); }

 private:
  // Barriers. Partners do not meet by themselves: racecheck (compute-sanitizer 2025.3) loses track of groups of threads that
  // cross. For the same reason nobody leaves a barrier out where a mask hides all of its weights.
  static constexpr int kWarpsWithP = 1;
  static constexpr int kWarpsWithDs = 2;
  static constexpr int kGiven = 3;

  // Scores become p, packed, and what the partner multiplies.
  __device__ __forceinline__ void weigh_p(
      uint32_t (&packed)[kWeightTiles][kPart / 16][4],
      float (&x)[kWeightTiles][kPart / 8][4],
      const Attention& a,
      const BwdState<T, kRow>& state,
      const BwdStep<T>& step,
      bool edge,
      float factor,
      int i,
      const LaneAddress<WeightTile>& given
  ) const {
    const BwdBlock& block = state.block;
    const int lane = threadIdx.x % kWarpSize;
    const int lane_query = query() + lane % 4 * 2;
    float2 shift[kPart / 8];
#pragma unroll
    for (int n = 0; n < kPart / 8; ++n) shift[n] = state.statistics[i % 2].shift_of_pair(lane_query + 8 * n);
    if constexpr (kPlain) {
      const auto shift_of = [&](int, int n, int e) { return e == 0 ? shift[n].x : shift[n].y; };
#pragma unroll
      for (int m = 0; m < kWeightTiles; ++m) {
        exponentiate(x[m], factor, shift_of);
        if (edge) {
          const int row = weight_key() + 16 * m + lane / 4;
          cap_weights<kRaised>(x[m]);
          hide_pairs(x[m], shift_of, step.mask(), block.own_count(), row, lane_query);
        }
        pack_operands<T>(packed[m], x[m]);
      }
      store_weights(given, packed);
    } else {
      // Slopes have few registers: a block after the other.
#pragma unroll
      for (int m = 0; m < kWeightTiles; ++m) {
        const int row = weight_key() + 16 * m + lane / 4;
#pragma unroll
        for (int k = 0; k < kPart / 16; ++k) {
          float(&p)[2][4] = columns_of(x[m], k);
          const int column = lane_query + 16 * k;
          const auto shift_of = [&](int, int n, int e) { return e == 0 ? shift[2 * k + n].x : shift[2 * k + n].y; };
          const int64_t distance = int64_t{step.begin()} + column + block.s.offset - block.own.begin - row;
          float slopes[2][4];
          for_each_pair(slopes, slopes, [](int, int, int, float& y, float&) { y = 1.0f; });
          apply_score_backward(p, slopes, a, alibi_slope(a, block.at.batch, step.head()), static_cast<float>(distance));
          exponentiate(p, factor, shift_of);
          if (edge) {
            cap_weights<kRaised>(p);
            hide_pairs(p, shift_of, step.mask(), block.own_count(), row, column);
            hide_pairs(slopes, shift_of, step.mask(), block.own_count(), row, column);
          }
          pack_operand<T>(packed[m][k], p, 0);
          weigh(p, slopes);
          uint32_t sloped[1][1][4];
          pack_operand<T>(sloped[0][0], p, 0);
          store_weights(LaneAddress<WeightTile>{given.at(16 * m, 16 * k)}, sloped);
        }
      }
    }
  }

  // dp becomes ds, packed; p lies where ds is to be.
  __device__ __forceinline__ void weigh_ds(
      uint32_t (&packed)[kWeightTiles][kPart / 16][4],
      float (&x)[kWeightTiles][kPart / 8][4],
      const BwdState<T, kRow>& state,
      const BwdStep<T>& step,
      bool edge,
      int i,
      uint32_t tile
  ) const {
    const int lane = threadIdx.x % kWarpSize;
    const int lane_query = query() + lane % 4 * 2;
    subtract_delta<kRaised>(x, state.statistics[i % 2], lane_query);
    if (edge) {
      const auto shift_of = [&](int, int n, int e) { return state.statistics[i % 2].shift[lane_query + 8 * n + e]; };
#pragma unroll
      for (int m = 0; m < kWeightTiles; ++m) {
        const int row = weight_key() + 16 * m + lane / 4;
        hide_pairs(x[m], shift_of, step.mask(), state.block.own_count(), row, lane_query);
      }
    }
    const LaneAddress<WeightTile> from = down_first<WeightTile>(tile, weight_key(), query());
#pragma unroll
    for (int m = 0; m < kWeightTiles; ++m) {
#pragma unroll
      for (int k = 0; k < kPart / 16; ++k) {
        uint32_t p[4];
        load_matrices(p, from.at(16 * m, 16 * k));
        multiply_operand<T>(x[m], p, k);
        pack_operand<T>(packed[m][k], x[m], k);
      }
    }
    __syncwarp();  // lanes store where others have read
  }
};

}  // namespace cuflash::cp_async
