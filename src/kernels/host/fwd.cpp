// SPDX-License-Identifier: MIT
// Forward: FlashAttention's loop (Dao et al. 2022, Algorithm 1) as it is written in the paper, in double.
//
//               keys ->  [ 32 | 32 | 32 | ... ]     a tile: 32 query rows of one head, computed by one worker
//   query rows  +----+                              each block of keys is converted to double once for the tile
//      32       | q  |   S = q K^T, O = O + P V     the rows' maxima, sums and outputs stay in double to the end
//               +----+
#include <algorithm>

#include "kernels/common/online_softmax.h"
#include "kernels/common/score.h"
#include "kernels/host/block.h"
#include "kernels/host/kernels.h"
#include "kernels/host/workers.h"

namespace cuflash::host {
namespace {

template <class T>
class ForwardTile {
 public:
  ForwardTile(const FwdArgs& args, const Tile& tile)
      : args_(args),
        a_(args.attention),
        s_(tile.sequence),
        tile_(tile),
        slope_(alibi_slope(a_, tile.entry, tile.head)) {
    std::fill_n(states_, kBlockRows, RowState<double>::empty());
    out_.clear();
  }

  void run() {
    q_.template load<T>(args_.q, s_.q, tile_.rows, tile_.head);
    const int32_t head_k = key_head(a_, tile_.head);
    for_each_block(visible_keys_of_rows(a_, s_, tile_.rows.begin, tile_.rows.end), kBlockKeys, [&](Range keys) {
      k_.template load<T>(args_.k, s_.k, keys, head_k);
      v_.template load<T>(args_.v, s_.k, keys, head_k);
      for (int32_t row = tile_.rows.begin; row < tile_.rows.end; ++row) attend(row, keys);
    });
    for (int32_t row = tile_.rows.begin; row < tile_.rows.end; ++row) store(row);
  }

 private:
  // One row against one block of keys. Keys that it does not see are left out, not multiplied by 0: they may be NaN.
  void attend(int32_t row, Range keys) {
    const Range visible = intersection(visible_keys(a_, s_, row), keys);
    if (visible.empty()) return;
    const int32_t r = row - tile_.rows.begin;

    double scores[kBlockKeys];
    k_.multiply(q_[r], scores);
    double block_max = kNegativeInfinity<double>;
    for (int32_t key = visible.begin; key < visible.end; ++key) {
      double& score = scores[key - keys.begin];
      score = score_of(a_, score, slope_, s_, row, key).value;
      block_max = max_or_nan(block_max, score);
    }

    RowState<double>& state = states_[r];
    const double rescale = state.raise(block_max);
    for (int32_t d = 0; d < a_.head_dim_v; ++d) out_[r][d] *= rescale;
    for (int32_t key = visible.begin; key < visible.end; ++key) {
      const double weight = std::exp(scores[key - keys.begin] - state.shift());
      state.row_sum += weight;
      add_scaled(out_[r], v_[key - keys.begin], weight, a_.head_dim_v);
    }
  }

  void store(int32_t row) {
    const int32_t r = row - tile_.rows.begin;
    T* out = mutable_row_pointer<T>(args_.o, s_.q, row, tile_.head);
    store_row(out_[r], states_[r].inverse_sum(), out, a_.head_dim_v);
    if (args_.lse != nullptr) {
      args_.lse[lse_offset(a_, s_.q, row, tile_.head)] = static_cast<float>(states_[r].lse());
    }
  }

  const FwdArgs& args_;
  const Attention& a_;
  const Sequence& s_;
  const Tile& tile_;
  const double slope_;
  RowState<double> states_[kBlockRows];
  RowBlock<kBlockRows> q_{a_.head_dim};
  RowBlock<kBlockRows> out_{a_.head_dim_v};
  KeyBlock k_{a_.head_dim};
  RowBlock<kBlockKeys> v_{a_.head_dim_v};
};

}  // namespace

template <class T>
Status forward(const FwdArgs& args, int32_t workers) {
  TileQueue<Side::kQuery> tiles(args.attention, kBlockRows);
  return compute_tiles<ForwardTile<T>>(args, tiles, workers);
}

template Status forward<float>(const FwdArgs& args, int32_t workers);
template Status forward<__half>(const FwdArgs& args, int32_t workers);
template Status forward<__nv_bfloat16>(const FwdArgs& args, int32_t workers);

}  // namespace cuflash::host
