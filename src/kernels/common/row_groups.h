// SPDX-License-Identifier: MIT
// How kernels that go over query rows once share them out: a group of lanes reads a row, 16 bytes each, so that a warp
// takes several short rows at a time and memory is the limit. Of the rows of a block, group g has g + i groups().
#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/tile_coord.h"
#include "kernels/common/warp.h"
#include "kernels/kernel_args.h"

namespace cuflash {

inline constexpr int kRowThreads = 256;  // of a block
inline constexpr int kRowsAtOnce = 4;    // of a group: with one row a thread has too few bytes in flight for the memory

// Elements that are read and written at once.
template <class T>
inline constexpr int kVectorSize = 16 / sizeof(T);

struct RowGroups {
  int32_t lanes;  // per row: a power of two, of one warp
  bool vectors;   // rows are read kVectorSize elements at a time, else one by one

  CUFLASH_HD int32_t groups() const { return kRowThreads / lanes; }
  CUFLASH_HD int32_t rows_per_block() const { return kRowsAtOnce * groups(); }
};

// For rows of head_dim elements; `aligned`: they begin at multiples of 16 bytes.
template <class T>
constexpr RowGroups row_groups(bool aligned, int32_t head_dim) {
  RowGroups groups = {kWarpSize, aligned && head_dim % kVectorSize<T> == 0};
  while (groups.vectors && groups.lanes / 2 * kVectorSize<T> >= head_dim) groups.lanes /= 2;
  return groups;
}

CUFLASH_HD int64_t num_row_blocks(const Attention& a, const RowGroups& groups) {
  return num_tiles(a.batch, a.num_heads, ceil_div(a.seqlen_q, groups.rows_per_block()));
}

}  // namespace cuflash
