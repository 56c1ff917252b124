// SPDX-License-Identifier: MIT
// Reads what generate_golden.py wrote; the format is described there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace cuflash::test {

class GoldenCase {
 public:
  std::string name;

  bool has(const std::string& key) const { return arrays_.count(key) != 0; }

  // Elements of an array that must be there and have this type.
  template <class T>
  std::span<const T> elements(const std::string& key) const;

  // Null if there is no such array.
  template <class T>
  const T* optional_elements(const std::string& key) const {
    return has(key) ? elements<T>(key).data() : nullptr;
  }

  int32_t integer(const std::string& key) const { return elements<int32_t>(key)[0]; }
  float real(const std::string& key) const { return elements<float>(key)[0]; }

  // The bytes of a tensor in the case's dtype.
  std::span<const std::byte> bytes(const std::string& key) const { return find(key).bytes; }

 private:
  friend class GoldenReader;

  struct Array {
    std::string type;
    std::vector<std::byte> bytes;
  };

  const Array& find(const std::string& key) const;

  std::map<std::string, Array> arrays_;
};

// Throws std::runtime_error if the file is not there or not of the format.
std::vector<GoldenCase> read_golden_file(const std::string& path);

}  // namespace cuflash::test
