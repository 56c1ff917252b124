// SPDX-License-Identifier: MIT
// Backward (Dao et al. 2022, Algorithm 4) in two passes that know nothing of each other; each owns what it writes:
//
//   QueryTile   32 query rows of a query head, loops over keys            dq_i = scale * sum_j ds_ij k_j
//   KeyTile     32 key rows of a key head, loops over the query heads     dv_j = sum_i p_ij dout_i
//               that read it, and over their rows                         dk_j = scale * sum_i ds_ij q_i
//
// The scores are computed in both, which costs half as much again; in return every sum has one worker and one order.
#include "kernels/common/online_softmax.h"
#include "kernels/common/score.h"
#include "kernels/host/block.h"
#include "kernels/host/kernels.h"
#include "kernels/host/workers.h"

namespace cuflash::host {
namespace {

double dot(const double* x, const double* y, int32_t dim) {
  double sum = 0.0;
  for (int32_t d = 0; d < dim; ++d) sum += x[d] * y[d];
  return sum;
}

// What a query row brings along: ds_ij = p_ij * (dp_ij + shift) * factor_ij with shift = dlse_i - delta_i.
struct QueryRow {
  int32_t row;
  const double* q;
  const double* dout;
  double lse;
  double shift;
};

// Reads a row into the caller's buffers for q and dout.
template <class T>
QueryRow load_query(const BwdArgs& args, const Sequence& s, int32_t row, int32_t head, double* q, double* dout) {
  const Attention& a = args.attention;
  double out[kMaxHeadDim];
  load_row(row_pointer<T>(args.q, s.q, row, head), q, a.head_dim);
  load_row(row_pointer<T>(args.dout, s.q, row, head), dout, a.head_dim_v);
  load_row(row_pointer<T>(args.o, s.q, row, head), out, a.head_dim_v);
  const int64_t at = lse_offset(a, s.q, row, head);
  const double dlse = args.dlse == nullptr ? 0.0 : args.dlse[at];
  return {row, q, dout, args.lse[at], dlse - dot(dout, out, a.head_dim_v)};
}

// One block of keys and values, and what a query row makes of it.
class PairBlock {
 public:
  PairBlock(const Attention& a, const Sequence& s) : a_(a), s_(s), k_(a.head_dim), v_(a.head_dim_v) {}

  template <class T>
  void load(const BwdArgs& args, Range keys, int32_t head_k) {
    keys_ = keys;
    k_.load<T>(args.k, s_.k, keys, head_k);
    v_.load<T>(args.v, s_.k, keys, head_k);
  }

  // body(j, p_ij, ds_ij) for the keys of the block that the row sees, j counted from the block's first. Keys that it
  // does not see are left out, not multiplied by 0: they may be NaN.
  template <class Body>
  void for_each_pair(const QueryRow& query, double slope, const Body& body) const {
    const Range visible = intersection(visible_keys(a_, s_, query.row), keys_);
    if (visible.empty()) return;
    double products[kBlockKeys];
    double dp[kBlockKeys];
    k_.multiply(query.q, products);
    v_.multiply(query.dout, dp);
    for (int32_t key = visible.begin; key < visible.end; ++key) {
      const int32_t j = key - keys_.begin;
      const Score<double> score = score_of(a_, products[j], slope, s_, query.row, key);
      const PairWeights<double> w = pair_weights(score, query.lse, dp[j] + query.shift);
      body(j, w.p, w.ds);
    }
  }

 private:
  const Attention& a_;
  const Sequence& s_;
  Range keys_{0, 0};
  KeyBlock k_;
  KeyBlock v_;
};

template <class T>
class QueryTile {
 public:
  QueryTile(const BwdArgs& args, const Tile& tile) : args_(args), a_(args.attention), s_(tile.sequence), tile_(tile) {
    dq_.clear();
  }

  void run() {
    const Range rows = tile_.rows;
    const int32_t head_k = key_head(a_, tile_.head);
    const double slope = alibi_slope(a_, tile_.entry, tile_.head);
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      const int32_t r = row - rows.begin;
      queries_[r] = load_query<T>(args_, s_, row, tile_.head, q_[r], dout_[r]);
    }
    for_each_block(visible_keys_of_rows(a_, s_, rows.begin, rows.end), kBlockKeys, [&](Range keys) {
      pairs_.load<T>(args_, keys, head_k);
      k_.template load<T>(args_.k, s_.k, keys, head_k);
      for (int32_t r = 0; r < rows.end - rows.begin; ++r) {
        pairs_.for_each_pair(queries_[r], slope, [&](int32_t j, double, double ds) {
          add_scaled(dq_[r], k_[j], ds, a_.head_dim);
        });
      }
    });
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      T* dq = mutable_row_pointer<T>(args_.dq, s_.q, row, tile_.head);
      store_row(dq_[row - rows.begin], a_.scale, dq, a_.head_dim);
    }
  }

 private:
  const BwdArgs& args_;
  const Attention& a_;
  const Sequence& s_;
  const Tile& tile_;
  QueryRow queries_[kBlockRows];
  RowBlock<kBlockRows> q_{a_.head_dim};
  RowBlock<kBlockRows> dout_{a_.head_dim_v};
  RowBlock<kBlockRows> dq_{a_.head_dim};
  PairBlock pairs_{a_, s_};
  RowBlock<kBlockKeys> k_{a_.head_dim};
};

template <class T>
class KeyTile {
 public:
  KeyTile(const BwdArgs& args, const Tile& tile) : args_(args), a_(args.attention), s_(tile.sequence), tile_(tile) {
    dk_.clear();
    dv_.clear();
  }

  void run() {
    const Range keys = tile_.rows;
    const int32_t group = group_size(a_);
    pairs_.load<T>(args_, keys, tile_.head);
    for (int32_t g = 0; g < group; ++g) add_head(tile_.head * group + g);
    for (int32_t key = keys.begin; key < keys.end; ++key) {
      const int32_t j = key - keys.begin;
      store_row(dk_[j], a_.scale, mutable_row_pointer<T>(args_.dk, s_.k, key, tile_.head), a_.head_dim);
      store_row(dv_[j], 1.0, mutable_row_pointer<T>(args_.dv, s_.k, key, tile_.head), a_.head_dim_v);
    }
  }

 private:
  void add_head(int32_t head) {
    const Range rows = visible_rows_of_keys(a_, s_, tile_.rows.begin, tile_.rows.end);
    const double slope = alibi_slope(a_, tile_.entry, head);
    double q[kMaxHeadDim];
    double dout[kMaxHeadDim];
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      const QueryRow query = load_query<T>(args_, s_, row, head, q, dout);
      pairs_.for_each_pair(query, slope, [&](int32_t j, double p, double ds) {
        add_scaled(dv_[j], dout, p, a_.head_dim_v);
        add_scaled(dk_[j], q, ds, a_.head_dim);
      });
    }
  }

  const BwdArgs& args_;
  const Attention& a_;
  const Sequence& s_;
  const Tile& tile_;
  PairBlock pairs_{a_, s_};
  RowBlock<kBlockKeys> dk_{a_.head_dim};
  RowBlock<kBlockKeys> dv_{a_.head_dim_v};
};

}  // namespace

template <class T>
Status backward(const BwdArgs& args, int32_t workers) {
  TileQueue<Side::kQuery> query_tiles(args.attention, kBlockRows);
  TileQueue<Side::kKey> key_tiles(args.attention, kBlockKeys);
  CUFLASH_TRY(compute_tiles<QueryTile<T>>(args, query_tiles, workers));
  return compute_tiles<KeyTile<T>>(args, key_tiles, workers);
}

template Status backward<float>(const BwdArgs& args, int32_t workers);
template Status backward<__half>(const BwdArgs& args, int32_t workers);
template Status backward<__nv_bfloat16>(const BwdArgs& args, int32_t workers);

}  // namespace cuflash::host
