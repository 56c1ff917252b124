// SPDX-License-Identifier: MIT
// The algorithm of register_tiled, with both products on tensor cores: fragments of 16 x 16 elements (fragment.cuh),
// 16-bit operands, fp32 sums.
//
//                 keys ->  64 at a time, in steps of 32
//   128 query   +--------+      a warp owns 16 query rows, o in fragments            shared memory, head_dim 128
//   rows per    |  warp  |      1. s  = q k^T    1 x 2 fragments, depth head_dim       q  128 x (128 + 8)   34 KB
//   block,      |   0    |      2. softmax       element by element, in fragments      k   64 x (128 + 8)   17 KB
//   8 warps     +--------+      3. p -> shared   in 16 bits, the warp's own rows       v   64 x (128 + 8)   17 KB
//               |  ...   |      4. o += p v      1 x 8 fragments, depth 32 keys        p  128 x  (32 + 8)   10 KB
//               +--------+                                                             two blocks per SM
//
// Why p passes through memory: which thread holds which element of a fragment is not specified, and differs between the
// result of one product and the operand of the next.
//
// Up to head_dim 64 there are 4 warps of 32 rows. Copies are synchronous: a thread reads its part of the next k and v into
// registers at the end of a tile, and writes it to shared memory between two barriers. Meanwhile another block of the SM
// multiplies. Tiles of a causal mask are started longest first. What limits it: docs/kernels/wmma.md.
#pragma once

#include "kernels/common/alignment.h"
#include "kernels/common/exact_rows.cuh"
#include "kernels/common/fwd_block.cuh"
#include "kernels/common/mask.h"
#include "kernels/common/score.h"
#include "kernels/common/tile_coord.h"
#include "kernels/common/tile_table.h"
#include "kernels/wmma/fragment.cuh"
#include "kernels/wmma/launchers.h"
#include "kernels/wmma/load.cuh"
#include "kernels/wmma/softmax.cuh"
#include "launch.cuh"

namespace cuflash::wmma {

template <class T, int kRow>
__device__ __forceinline__ void fwd_tiles(const FwdArgs& args, const bool aligned) {
  constexpr FwdTile kTile = kFwdTiles[kRow];
  constexpr int kThreads = kTile.threads();
  constexpr int kPitch = kTile.pitch();
  constexpr int kPitchP = kTile.pitch_p();
  constexpr int kWarpRows = kTile.warp_rows();
  constexpr int kStep = kTile.step_n;
  constexpr int kRows = kTile.row_fragments;
  constexpr int kKeys = kStep / kSide;
  constexpr int kDims = kTile.head_dim / kSide;
  extern __shared__ __align__(128) unsigned char shared[];
  T* sQ = reinterpret_cast<T*>(shared);
  T* sK = sQ + kTile.q_elements();
  T* sV = sK + kTile.k_elements();
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  unsigned char* own = reinterpret_cast<unsigned char*>(sV + kTile.k_elements()) + warp * kTile.warp_bytes();
  T* sP = reinterpret_cast<T*>(own);
  float* scratch = reinterpret_cast<float*>(own);  // in turn with p
  T* own_q = sQ + warp * kWarpRows * kPitch;
  const ElementMap map(scratch, lane);
  using Block = FwdBlock<kTile.warps()>;
  static_assert(sizeof(Block) <= kTile.block_bytes());
  Block& block = *reinterpret_cast<Block*>(shared + kTile.shared_bytes() - kTile.block_bytes());
  const auto own_rows = [&](const Range& all) {
    const int32_t begin = all.begin + min(warp * kWarpRows, all.end - all.begin);
    return Range{begin, min(begin + kWarpRows, all.end)};
  };

  const Attention& a = args.attention;
  // Scales with which the factor is not a positive normal number are left to score_of().
  const bool plain = a.softcap == 0.0f && a.alibi_slopes == nullptr && a.scale > 1e-37f && a.scale < 1e38f;
  const float factor = plain ? a.scale * kLog2e : kLog2e;
  const int32_t blocks_per_head = ceil_div(a.seqlen_q, kTile.block_m);
  const int64_t tiles = num_tiles(a.batch, a.num_heads, blocks_per_head);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TileCoord at = tile_coord_by_block(tiles - 1 - tile, a.batch, a.num_heads);
    const Sequence s = sequence_of(a, at.batch);
    const Range rows = block_rows(at.block, kTile.block_m, s.q.length);
    if (rows.empty()) continue;
    const Range keys = visible_keys_of_rows(a, s, rows.begin, rows.end);
    const int32_t head_k = key_head(a, at.head);

    __syncthreads();  // the previous tile's results have left
    if (threadIdx.x == 0) {
      block.at = at;
      block.s = s;
      block.rows = rows;
      block.keys = keys;
    }
    if (lane == 0) block.seen[warp] = WarpKeys::of(a, s, own_rows(rows), keys.begin);

    using KeyCopy = TileCopy<T, kThreads, kTile.block_n, kTile.head_dim, kPitch>;
    KeyCopy k_copy, v_copy;
    const T* k = row_pointer<T>(args.k, s.k, keys.begin, head_k);  // of the next tile
    const T* v = row_pointer<T>(args.v, s.k, keys.begin, head_k);
    const auto k_source = [&](int32_t left) { return KeyCopy::source(k, args.k.row_stride, left, a.head_dim); };
    const auto v_source = [&](int32_t left) { return KeyCopy::source(v, args.v.row_stride, left, a.head_dim_v); };
    const auto fetch = [&](int32_t left) {
      k_copy.fetch(k_source(left), aligned);
      if (kTile.v_with_k) v_copy.fetch(v_source(left), aligned);
    };
    const int32_t key_count = max(keys.end - keys.begin, 0);
    if (key_count > 0) {
      using QCopy = TileCopy<T, kThreads, kTile.block_m, kTile.head_dim, kPitch>;
      QCopy q_copy;
      const T* q = row_pointer<T>(args.q, s.q, rows.begin, at.head);
      const auto q_source = QCopy::source(q, args.q.row_stride, rows.end - rows.begin, a.head_dim);
      q_copy.fetch(q_source, aligned);
      q_copy.place(sQ, q_source, aligned);
      fetch(key_count);
    } else {
      __syncthreads();  // no other barrier precedes the reads of `block`
    }

    RowStates<kRows> state;
    Sums o[kRows][kDims];
    clear(o);
#pragma unroll 1
    for (uint32_t begin = 0; begin < static_cast<uint32_t>(key_count); begin += kTile.block_n) {  // may pass 2^31
      const int32_t left = key_count - static_cast<int32_t>(begin);
      k_copy.place(sK, k_source(left), aligned);
      if constexpr (!kTile.v_with_k) {
        v_copy.fetch(v_source(left), aligned);
        __syncwarp();  // all of it is on its way before the first part is waited for
      }
      v_copy.place(sV, v_source(left), aligned);
      k += kTile.block_n * args.k.row_stride;
      v += kTile.block_n * args.v.row_stride;
      __syncthreads();

#pragma unroll 1
      for (int step = 0; step < kTile.block_n; step += kStep) {
        const int32_t first = static_cast<int32_t>(begin) + step;
        const WarpKeys seen = block.seen[warp];
        if (first >= seen.any.end || first + kStep <= seen.any.begin) continue;
        const bool edge = first < seen.all.begin || first + kStep > seen.all.end;

        const ElementMap places = map.anew();
        Sums p[kRows][kKeys];
        clear(p);
        add_product<kTile.head_dim>(p, along_rows<kPitch>(own_q), along_rows<kPitch>(sK + step * kPitch));
        if (!plain) {
          const float slope = alibi_slope(a, block.at.batch, block.at.head);
          const int64_t first_row = own_rows(block.rows).begin;
          const int64_t first_key = block.keys.begin + first;
          map_one_by_one(p, scratch, lane, [&](float product, int row, int col) {
            return score_of(a, product, slope, block.s, first_row + row, first_key + col).value;
          });
        }
        if (edge) {
          const TileMask mask = key_mask(a, block.s, own_rows(block.rows).begin, block.keys.begin + first);
          for_each_element(p, places, [&](float& score, int row, int col) {
            if (!mask.sees(row, col)) score = kNegativeInfinity<float>;
          });
        }
        state.exponentiate(p, factor, o, scratch, lane);

        store_rounded<kPitchP>(sP, p, places);
        __syncwarp();
        add_product<kStep>(o, along_rows<kPitchP>(sP), down_columns<kPitch>(sV + step * kPitch));
        __syncwarp();
      }
      fetch(left - kTile.block_n);
      __syncthreads();
    }

    // o leaves through the memory of q, of which a warp reads its own rows only.
    state.finish(scratch, lane);
    float lse = 0.0f;  // of row `lane` of the warp
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      Sums row_lse;
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const float inverse = state.inverse_sum(i, e);
#pragma unroll
        for (int j = 0; j < kDims; ++j) o[i][j].x[e] *= inverse;
        row_lse.x[e] = state.lse(i, e);
      }
      to_scratch(scratch, row_lse);
      if (lane / kSide == i) lse = scratch[lane % kSide * kScratchPitch];
      __syncwarp();
    }
    store_rounded<kPitch>(own_q, o, map.anew());
    __syncwarp();
    const Range own = own_rows(block.rows);
    const int count = own.end - own.begin;
    if (args.lse != nullptr && lane < count) args.lse[lse_offset(a, block.s.q, own.begin + lane, block.at.head)] = lse;
    const uint32_t nan_rows = __ballot_sync(kFullWarp, lse != lse);  // as they should be: a score is NaN
    const uint32_t not_finite = store_rows<T, kTile.head_dim, kPitch>(
        mutable_row_pointer<T>(args.o, block.s.q, own.begin, block.at.head),
        args.o.row_stride,
        count,
        a.head_dim_v,
        aligned,
        own_q,
        lane
    );
    if (!masks_pairs(a)) continue;
    __syncwarp();
    for_each_bit(not_finite & ~nan_rows, [&](int row) {
      fwd_exact_row<T, kTile.head_dim>(args, block.s, block.at, own.begin + row, lane);
    });
  }
}

template <class T, int kRow>
__global__ void __launch_bounds__(kFwdTiles[kRow].threads(), kFwdTiles[kRow].min_blocks)
    fwd_kernel(const FwdArgs args, const bool aligned) {
  if constexpr (kHasFragments<T>) fwd_tiles<T, kRow>(args, aligned);
}

template <class T, int kHeadDim>
Status launch_fwd(const FwdArgs& args, const Plan& plan, const LaunchContext& context) {
  return with_tile<kFwdTiles, kHeadDim>(plan, [&]<int kRow>() {
    constexpr FwdTile kTile = kFwdTiles[kRow];
    const LaunchShape shape = {plan.query_blocks, kTile.threads(), kTile.shared_bytes()};
    const Attention& a = args.attention;
    const bool aligned = rows_are_aligned(args.q, sizeof(T)) && rows_are_aligned(args.k, sizeof(T)) &&
                         rows_are_aligned(args.v, sizeof(T)) && rows_are_aligned(args.o, sizeof(T)) &&
                         a.head_dim % kChunk == 0 && a.head_dim_v % kChunk == 0;
    return launch(context, "wmma fwd", fwd_kernel<T, kRow>, shape, args, aligned);
  });
}

}  // namespace cuflash::wmma
