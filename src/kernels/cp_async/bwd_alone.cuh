// SPDX-License-Identifier: MIT
// A warp that has keys of its own in the backward pass: their weights stay in its registers, `part` queries at a time, and
// are operand a of the products for both gradients.
#pragma once

#include "kernels/cp_async/bwd_block.cuh"
#include "kernels/cp_async/bwd_products.cuh"
#include "kernels/cp_async/bwd_weights.cuh"

namespace cuflash::cp_async {

template <class T, int kRow, bool kPlain>
struct BwdAloneWarp {
  using Memory = BwdMemory<kRow>;
  using OwnTile = typename Memory::OwnTile;
  using StepTile = typename Memory::StepTile;
  using WeightTile = typename Memory::WeightTile;
  static constexpr BwdTile kTile = kBwdTiles[kRow];
  static constexpr int kDepth = kTile.head_dim / 16;
  static constexpr int kMTiles = kTile.sum_keys() / 16;
  static constexpr int kSumTiles = kTile.head_dim / 8;
  static constexpr int kPart = kTile.part;
  static constexpr int kRaised = 0;  // weights are not rounded before they meet dp
  static constexpr bool kKeepsKv = kTile.kv_in_registers;

  int key;  // its first one in the block
  LaneAddress<OwnTile> own_k, own_v;
  uint32_t kept_k[kKeepsKv ? kDepth : 1][kMTiles][4];
  uint32_t kept_v[kKeepsKv ? kDepth : 1][kMTiles][4];
  float dk[kMTiles][kSumTiles][4];
  float dv[kMTiles][kSumTiles][4];

  __device__ __forceinline__ explicit BwdAloneWarp(const Memory& memory) {
    key = threadIdx.x / kWarpSize * kTile.sum_keys();
    own_k = down_first<OwnTile>(memory.k, key);
    own_v = down_first<OwnTile>(memory.v(), key);
    clear(dk);
    clear(dv);
  }

  __device__ __forceinline__ int sum_key() const { return key; }

  // The block's keys have arrived.
  __device__ __forceinline__ void keep_keys() {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        load_matrices(kept_k[k][m], own_k.at(16 * m, 16 * k));
        load_matrices(kept_v[k][m], own_v.at(16 * m, 16 * k));
      }
    }
  }

  // Step i: ds to shared memory, and what it adds to dk and dv.
  __device__ __forceinline__ void add(
      const BwdArgs& args, const BwdState<T, kRow>& state, const Memory& memory, int i, bool edge, float factor
  ) {
    const Attention& a = args.attention;
    const BwdBlock& block = state.block;
    const BwdStep<T>& step = state.steps[i % 4];
    const StepStatistics<kTile.block_m>& statistics = state.statistics[i % 2];
    const int lane = threadIdx.x % kWarpSize;
    const uint32_t lane_weight = WeightTile::offset(key + lane / 4, 0) + lane % 4 * 4u;
#pragma unroll 1
    for (int query = 0; query < kTile.block_m; query += kPart) {
      const LaneAddress<WeightTile> ds_at = {memory.ds(i) + (lane_weight ^ (query / 8 * 16))};
      if (edge && step.mask().hides_all(key, kTile.sum_keys(), query, kPart)) {
        const uint32_t zero[kMTiles][kPart / 16][4] = {};
        store_weights(ds_at, zero);
        continue;
      }
      const LaneAddress<StepTile> q_rows = along_first<StepTile>(memory.q(i), query);
      const LaneAddress<StepTile> dout_rows = along_first<StepTile>(memory.dout(i), query);
      float p[kMTiles][kPart / 8][4], ds[kMTiles][kPart / 8][4];
      const int lane_query = query + lane % 4 * 2;
      float2 shift[kPart / 8];
#pragma unroll
      for (int n = 0; n < kPart / 8; ++n) shift[n] = statistics.shift_of_pair(lane_query + 8 * n);
      clear(p);
      clear(ds);
      subtract_delta<kRaised>(ds, statistics, lane_query);  // dp starts from -delta
      const auto own_rows = [&](const auto& kept, const LaneAddress<OwnTile>& from) {
        return [&](int k, uint32_t(&x)[kMTiles][4]) {
#pragma unroll
          for (int m = 0; m < kMTiles; ++m) {
            if constexpr (kKeepsKv) {
#pragma unroll
              for (int e = 0; e < 4; ++e) x[m][e] = kept[k][m][e];
            } else {
              load_matrices(x[m], from.at(16 * m, 16 * k));
            }
          }
        };
      };
      const auto step_rows = [&](const LaneAddress<StepTile>& from) {
        return [&](int k, int j, uint32_t(&y)[4]) { load_matrices(y, from.at(16 * j, 16 * k)); };
      };
      add_product<T, kDepth>(p, own_rows(kept_k, own_k), step_rows(q_rows));
      add_product<T, kDepth>(ds, own_rows(kept_v, own_v), step_rows(dout_rows));

      uint32_t packed_p[kMTiles][kPart / 16][4], packed_ds[kMTiles][kPart / 16][4];
      const auto shift_of = [&](int, int n, int e) { return e == 0 ? shift[n].x : shift[n].y; };
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        const int row = key + 16 * m + lane / 4;
        if constexpr (!kPlain) {
          const int64_t distance = int64_t{step.begin()} + lane_query + block.s.offset - block.own.begin - row;
          apply_score_backward(
              p[m], ds[m], a, alibi_slope(a, block.at.batch, step.head()), static_cast<float>(distance)
          );
        }
        exponentiate(p[m], factor, shift_of);
        if (edge) {
          cap_weights<kRaised>(p[m]);
          hide_pairs(p[m], shift_of, step.mask(), block.own_count(), row, lane_query);
          hide_pairs(ds[m], shift_of, step.mask(), block.own_count(), row, lane_query);
        }
        weigh(ds[m], p[m]);
        pack_operands<T>(packed_p[m], p[m]);
        pack_operands<T>(packed_ds[m], ds[m]);
      }
      store_weights(ds_at, packed_ds);
      const auto columns = [&](const LaneAddress<StepTile>& from) {
        return [&](int k, int j, uint32_t(&y)[4]) { load_matrices_transposed(y, from.at(16 * k, 16 * j)); };
      };
      const LaneAddress<StepTile> q_columns = down_first<StepTile>(memory.q(i), query);
      const LaneAddress<StepTile> dout_columns = down_first<StepTile>(memory.dout(i), query);
      add_product<T, kPart / 16>(dv, from_registers(packed_p), columns(dout_columns));
      add_product<T, kPart / 16>(dk, from_registers(packed_ds), columns(q_columns));
    }
  }

  __device__ __forceinline__ void store(const BwdArgs& args, const BwdBlock& block) const {
    const Attention& a = args.attention;
    const Range rows = block.rows_of_keys(key, kTile.sum_keys());
    store_columns<T, 1>({args.dk, block.s.k, rows, block.at.head, a.head_dim}, 0, dk, a.scale);
    store_columns<T, 1>({args.dv, block.s.k, rows, block.at.head, a.head_dim_v}, 0, dv, 1.0f);
  }

  // Of the lane's part of its row i.
  __device__ __forceinline__ bool is_finite(int i) const { return row_is_finite(dk, i) && row_is_finite(dv, i); }
};

}  // namespace cuflash::cp_async
