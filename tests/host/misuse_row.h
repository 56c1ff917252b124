// SPDX-License-Identifier: MIT
// One row of the misuse matrix, and what rows are made with.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuflash/cuflash.h"

namespace cuflash::test {

using Forward = cuflashForwardParams_t;
using Backward = cuflashBackwardParams_t;

template <class Params>
inline constexpr bool kIsBackward = std::is_same_v<Params, Backward>;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

// The params of one row, with room behind them for the struct of a later version.
template <class Params>
struct Record {
  Params params;
  unsigned char tail[64];
};

template <class Params>
struct Row {
  std::string name;
  cuflashStatus_t status;
  std::vector<std::string> mentions;  // texts that the message must hold
  std::function<void(Record<Params>&)> change;
  bool size_query_accepts = false;  // about data that only a run needs
};

template <class Params>
using Rows = std::vector<Row<Params>>;

template <class Params, class Change>
void add(Rows<Params>& rows, const std::string& name, std::vector<std::string> mentions, Change change) {
  rows.push_back({name, CUFLASH_STATUS_INVALID_ARGUMENT, std::move(mentions), change});
}

// A scalar field with each of the given bad values.
template <class Params, class T>
void add_values(Rows<Params>& rows, const std::string& field, T Params::*member, const std::vector<T>& values) {
  for (const T value : values) {
    add(rows, field + " = " + std::to_string(value), {field + " ("}, [=](Record<Params>& r) {
      r.params.*member = value;
    });
  }
}

template <class T>
T* moved(T* pointer, intptr_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<intptr_t>(pointer) + bytes);
}

template <class Params, class T>
void add_misaligned(Rows<Params>& rows, const std::string& field, const T* Params::*member) {
  alignas(16) static const unsigned char kValues[64] = {};
  for (const intptr_t bytes : {1, 2, 3}) {
    add(rows, field + " misaligned by " + std::to_string(bytes), {field + " ("}, [=](Record<Params>& r) {
      r.params.*member = moved(reinterpret_cast<const T*>(kValues), bytes);
    });
  }
}

}  // namespace cuflash::test
