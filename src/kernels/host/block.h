// SPDX-License-Identifier: MIT
// Rows of one head as doubles, in buffers of fixed capacity, and the two loops that everything is made of. Both run over
// independent sums, so that the compiler vectorises them without reordering any.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/mask.h"
#include "kernels/common/sequence.h"
#include "kernels/host/convert.h"
#include "problem.h"

namespace cuflash::host {

inline constexpr int32_t kBlockRows = 32;  // query rows of a tile
inline constexpr int32_t kBlockKeys = 32;  // key rows that are converted once and used by all rows of a tile

// y += factor * x
inline void add_scaled(double* __restrict y, const double* __restrict x, double factor, int32_t dim) {
  for (int32_t d = 0; d < dim; ++d) y[d] += factor * x[d];
}

template <class T>
void load_row(const T* from, double* to, int32_t dim) {
  for (int32_t d = 0; d < dim; ++d) to[d] = to_double(from[d]);
}

template <class T>
void store_row(const double* from, double factor, T* to, int32_t dim) {
  for (int32_t d = 0; d < dim; ++d) to[d] = from_double<T>(factor * from[d]);
}

// Up to kRows rows of `dim` values, one after the other without gaps.
template <int32_t kRows>
class RowBlock {
 public:
  explicit RowBlock(int32_t dim) : dim_(dim) {}

  double* operator[](int32_t row) { return values_ + row * dim_; }
  const double* operator[](int32_t row) const { return values_ + row * dim_; }

  void clear() { std::fill_n(values_, kRows * dim_, 0.0); }

  template <class T>
  void load(const ConstTensor& tensor, const Rows& rows, Range range, int32_t head) {
    for (int32_t row = range.begin; row < range.end; ++row) {
      load_row(row_pointer<T>(tensor, rows, row, head), (*this)[row - range.begin], dim_);
    }
  }

 private:
  int32_t dim_;
  double values_[kRows * kMaxHeadDim];
};

// Up to kBlockKeys key rows, transposed: one row of a query is multiplied with all of them at once.
class KeyBlock {
 public:
  explicit KeyBlock(int32_t dim) : dim_(dim) {}

  template <class T>
  void load(const ConstTensor& tensor, const Rows& rows, Range range, int32_t head) {
    const int32_t num_keys = range.end - range.begin;
    for (int32_t key = 0; key < kBlockKeys; ++key) {
      if (key < num_keys) {
        const T* from = row_pointer<T>(tensor, rows, range.begin + key, head);
        for (int32_t d = 0; d < dim_; ++d) values_[d][key] = to_double(from[d]);
      } else {
        for (int32_t d = 0; d < dim_; ++d) values_[d][key] = 0.0;
      }
    }
  }

  // products[key] = row . key
  void multiply(const double* __restrict row, double* __restrict products) const {
    std::fill_n(products, kBlockKeys, 0.0);
    for (int32_t d = 0; d < dim_; ++d) {
      for (int32_t key = 0; key < kBlockKeys; ++key) products[key] += row[d] * values_[d][key];
    }
  }

 private:
  int32_t dim_;
  double values_[kMaxHeadDim][kBlockKeys];
};

inline Range intersection(Range x, Range y) {
  const int32_t begin = std::max(x.begin, y.begin);
  return {begin, std::max(begin, std::min(x.end, y.end))};
}

// body(block) for the pieces of `range` of at most `size`, in order.
template <class Body>
void for_each_block(Range range, int32_t size, const Body& body) {
  for (int32_t begin = range.begin; begin < range.end;) {
    const int32_t end = range.end - begin > size ? begin + size : range.end;
    body(Range{begin, end});
    begin = end;
  }
}

}  // namespace cuflash::host
