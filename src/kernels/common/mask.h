// SPDX-License-Identifier: MIT
// Which keys a query row sees. Every mask of the library is a window around a diagonal, so what a row sees is one
// range of keys, and who sees a key is one range of rows; bottom-right alignment is in Sequence::offset and only there.
#pragma once

#include "kernels/common/host_device.h"
#include "kernels/common/sequence.h"

namespace cuflash {

struct Range {
  int32_t begin;
  int32_t end;  // exclusive; begin <= end

  CUFLASH_HD bool empty() const { return begin >= end; }
  CUFLASH_HD bool contains(int32_t x) const { return x >= begin && x < end; }
};

CUFLASH_HD Range clamp_range(int64_t begin, int64_t end, int32_t length) {
  const int64_t low = clamp_to(begin, 0, length);
  return {static_cast<int32_t>(low), static_cast<int32_t>(clamp_to(end, low, length))};
}

// Keys that query row i sees: i + off - left <= j <= i + off + right.
CUFLASH_HD Range visible_keys(const Attention& a, const Sequence& s, int32_t row) {
  const int64_t diagonal = row + s.offset;
  return clamp_range(diagonal - a.window_left, diagonal + a.window_right + 1, s.k.length);
}

// Keys that some row of [row_begin, row_end) sees. Exact for a window: the ranges of neighbouring rows shift by one.
CUFLASH_HD Range visible_keys_of_rows(const Attention& a, const Sequence& s, int32_t row_begin, int32_t row_end) {
  return clamp_range(row_begin + s.offset - a.window_left, row_end - 1 + s.offset + a.window_right + 1, s.k.length);
}

// Rows that see key j.
CUFLASH_HD Range visible_rows(const Attention& a, const Sequence& s, int32_t key) {
  const int64_t diagonal = key - s.offset;
  return clamp_range(diagonal - a.window_right, diagonal + a.window_left + 1, s.q.length);
}

// Rows that see some key of [key_begin, key_end).
CUFLASH_HD Range visible_rows_of_keys(const Attention& a, const Sequence& s, int32_t key_begin, int32_t key_end) {
  return clamp_range(key_begin - s.offset - a.window_right, key_end - 1 - s.offset + a.window_left + 1, s.q.length);
}

// Whether the mask can hide pairs of rows that are in use from each other. If not, every pair of a tile but those past the
// end of a sequence is visible.
CUFLASH_HD bool masks_pairs(const Attention& a) { return a.window_left < kUnlimited || a.window_right < kUnlimited; }

// The mask of a tile in the tile's own coordinates: its row r sees its columns c from begin + r up to end + r and below
// columns. 32 bits are enough: what is further away than kFar from every tile is as good as at kFar.
struct TileMask {
  static constexpr int32_t kFar = 1 << 30;
  int32_t begin;
  int32_t end;  // exclusive
  int32_t columns;

  CUFLASH_HD bool sees(int32_t r, int32_t c) const { return c >= begin + r && c < end + r && c < columns; }
  // Whether the first `rows` rows all see the first `cols` columns: such a tile needs no mask.
  CUFLASH_HD bool hides_nothing(int32_t rows, int32_t cols) const {
    return begin + rows - 1 <= 0 && cols <= end && cols <= columns;
  }
  // Whether none of `rows` rows from r on sees one of `cols` columns from c on.
  CUFLASH_HD bool hides_all(int32_t r, int32_t rows, int32_t c, int32_t cols) const {
    const int32_t col_end = c + cols < columns ? c + cols : columns;
    return c >= col_end || col_end <= begin + r || c >= end + r + rows - 1;
  }
};

CUFLASH_HD TileMask tile_mask(int64_t begin, int64_t end, int64_t columns) {
  constexpr int32_t kFar = TileMask::kFar;
  return {
      static_cast<int32_t>(clamp_to(begin, -kFar, kFar)),
      static_cast<int32_t>(clamp_to(end, -kFar, kFar)),
      static_cast<int32_t>(clamp_to(columns, -kFar, kFar))};
}

// Rows are query rows from `row` on, columns are keys from `key` on.
CUFLASH_HD TileMask key_mask(const Attention& a, const Sequence& s, int64_t row, int64_t key) {
  const int64_t diagonal = row + s.offset - key;
  return tile_mask(diagonal - a.window_left, diagonal + a.window_right + 1, s.k.length - key);
}

// Rows are keys from `key` on, columns are query rows from `row` on.
CUFLASH_HD TileMask query_mask(const Attention& a, const Sequence& s, int64_t key, int64_t row) {
  const int64_t diagonal = key - s.offset - row;
  return tile_mask(diagonal - a.window_right, diagonal + a.window_left + 1, s.q.length - row);
}

}  // namespace cuflash
