// SPDX-License-Identifier: MIT
// Where a tile of 16-bit elements lies in shared memory, and how a product is told. Tensor copies and wgmma share the layout
// (PTX ISA, swizzle modes and matrix descriptors of wgmma): a tile is cut into panels of 64 elements, 128 bytes a row; all
// rows of a panel follow each other, and the 16-byte chunks of a row are exchanged by the row's number, modulo 8. Eight rows
// are an atom of 1024 bytes, at a multiple of 1024.
#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

namespace cuflash::sm90 {

inline constexpr int kPanel = 64;  // elements
inline constexpr int kRowBytes = 2 * kPanel;
inline constexpr int kAtomBytes = 8 * kRowBytes;
inline constexpr int kStep = 16;  // depth of one product

// Of a tile of kRows rows. The place of its elements, and how its operands are described.
template <int kRows>
struct Panels {
  static constexpr int kBytes = kRows * kRowBytes;  // of a panel
  static_assert(kRows % 8 == 0);

  // Byte offset of an element.
  CUFLASH_HD static constexpr int offset(int row, int column) {
    const int chunk = column % kPanel / 8;
    return column / kPanel * kBytes + row * kRowBytes + ((chunk ^ (row % 8)) * 16) + column % 8 * 2;
  }
  // Byte offset of the operand whose rows are those of the tile (q, k), `step` products deep into head_dim.
  CUFLASH_HD static constexpr int along_rows(int step) {
    return step * kStep / kPanel * kBytes + step * kStep % kPanel * 2;
  }
  // Byte offset of the operand whose depth is the tile's rows (v), `step` products deep.
  CUFLASH_HD static constexpr int down_rows(int step) { return step * kStep * kRowBytes; }
};

// The descriptor of an operand at a shared-memory address. All lengths count in 16 bytes: bits 0 to 13 the address, 16 to 29
// and 32 to 45 two distances, 62 and 63 the swizzle of 128 bytes. Offsets inside of a tile may be added to the address
// alone, see offset_by().
CUFLASH_HD constexpr uint64_t describe(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes) {
  const auto field = [](uint32_t bytes) { return static_cast<uint64_t>((bytes & 0x3ffff) >> 4); };
  return field(address) | field(leading_bytes) << 16 | field(stride_bytes) << 32 | uint64_t{1} << 62;
}

// Rows of the operand are rows of the tile: from eight rows to the next eight; the first distance has no meaning.
CUFLASH_HD constexpr uint64_t describe_rows(uint32_t address) { return describe(address, 16, kAtomBytes); }

// Depth of the operand is the tile's rows: from panel to panel, and from eight rows to the next eight.
template <int kRows>
CUFLASH_HD constexpr uint64_t describe_columns(uint32_t address) {
  return describe(address, Panels<kRows>::kBytes, kAtomBytes);
}

CUFLASH_HD constexpr uint64_t offset_by(uint64_t descriptor, int bytes) {
  return descriptor + static_cast<uint64_t>(bytes >> 4);
}

}  // namespace cuflash::sm90
