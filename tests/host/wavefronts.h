// SPDX-License-Identifier: MIT
// What an access of a warp to shared memory costs, in wavefronts of 128 bytes. There are 32 banks of 4 bytes; a wavefront
// takes one word of each bank, for all lanes that want that word.
//
// 16-byte accesses are served per half of the warp. A half is one access if its lanes i and i ^ 1 want the same address,
// all of them, or its lanes i and i ^ 2; else each of its quarters is one.
#pragma once

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <utility>

namespace cuflash::test {

// Places of the 32 lanes in shared memory, counted in floats.
using WarpPlaces = std::array<int, 32>;

// The places of a warp's lanes, by a function of the thread.
template <class Place>
WarpPlaces warp_places(int warp, Place&& place) {
  WarpPlaces places;
  for (int lane = 0; lane < 32; ++lane) places[static_cast<size_t>(lane)] = place(warp * 32 + lane);
  return places;
}

// Calls f.operator()<kRow>() for every row of a tile table.
template <const auto& kTable, class F>
void for_each_row(F&& f) {
  [&]<int... kRow>(std::integer_sequence<int, kRow...>) { (f.template operator()<kRow>(), ...); }
  (std::make_integer_sequence<int, static_cast<int>(kTable.size())>());
}

// The largest number of different words of kFloats floats that lie in the same banks.
template <int kFloats>
int words_per_bank(std::span<const int> places) {
  constexpr int kGroups = 32 / kFloats;
  std::array<std::set<int>, kGroups> words;
  for (const int place : places) words[static_cast<size_t>(place / kFloats % kGroups)].insert(place);
  size_t most = 0;
  for (const std::set<int>& of_group : words) most = std::max(most, of_group.size());
  return static_cast<int>(most);
}

inline bool is_paired(std::span<const int> places, size_t distance) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] != places[i ^ distance]) return false;
  }
  return true;
}

// Loads and stores of 4 bytes.
inline int float_wavefronts(const WarpPlaces& places) { return words_per_bank<1>(places); }

// Loads and stores of 16 bytes.
inline int quad_wavefronts(const WarpPlaces& places) {
  constexpr size_t kHalf = 16, kQuarter = 8;
  int wavefronts = 0;
  for (size_t begin = 0; begin < places.size(); begin += kHalf) {
    const std::span<const int> half(places.data() + begin, kHalf);
    if (is_paired(half, 1) || is_paired(half, 2)) {
      wavefronts += words_per_bank<4>(half);
    } else {
      wavefronts += words_per_bank<4>(half.first(kQuarter)) + words_per_bank<4>(half.last(kQuarter));
    }
  }
  return wavefronts;
}

// ldmatrix.x4: each quarter of the warp shows the rows of one matrix, 16 bytes a row.
inline int matrix_wavefronts(const WarpPlaces& places) {
  constexpr size_t kMatrixRows = 8;
  int wavefronts = 0;
  for (size_t begin = 0; begin < places.size(); begin += kMatrixRows) {
    wavefronts += words_per_bank<4>(std::span<const int>(places.data() + begin, kMatrixRows));
  }
  return wavefronts;
}

}  // namespace cuflash::test
