// SPDX-License-Identifier: MIT
#include "golden_file.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace cuflash::test {
namespace {

constexpr char kMagic[] = "cuflash golden 1";

template <class T>
constexpr const char* kTypeName = nullptr;
template <>
constexpr const char* kTypeName<int32_t> = "i4";
template <>
constexpr const char* kTypeName<float> = "f4";
template <>
constexpr const char* kTypeName<double> = "f8";

size_t size_of_type(const std::string& type) {
  const char digit = type.back();
  if (digit != '2' && digit != '4' && digit != '8') throw std::runtime_error("golden file: unknown type " + type);
  return static_cast<size_t>(digit - '0');
}

}  // namespace

const GoldenCase::Array& GoldenCase::find(const std::string& key) const {
  const auto found = arrays_.find(key);
  if (found == arrays_.end()) throw std::runtime_error("golden case " + name + " has no " + key);
  return found->second;
}

template <class T>
std::span<const T> GoldenCase::elements(const std::string& key) const {
  const Array& array = find(key);
  if (array.type != kTypeName<T>) throw std::runtime_error("golden case " + name + ": " + key + " is " + array.type);
  return {reinterpret_cast<const T*>(array.bytes.data()), array.bytes.size() / sizeof(T)};
}

template std::span<const int32_t> GoldenCase::elements<int32_t>(const std::string&) const;
template std::span<const float> GoldenCase::elements<float>(const std::string&) const;
template std::span<const double> GoldenCase::elements<double>(const std::string&) const;

class GoldenReader {
 public:
  explicit GoldenReader(std::string data) : data_(std::move(data)) {}

  std::vector<GoldenCase> read() {
    if (take(sizeof(kMagic) - 1) != kMagic) throw std::runtime_error("not a golden file");
    std::vector<GoldenCase> cases(number());
    for (GoldenCase& c : cases) read_case(&c);
    if (at_ != data_.size()) throw std::runtime_error("golden file: bytes after the last case");
    return cases;
  }

 private:
  void read_case(GoldenCase* c) {
    c->name = take(number());
    for (uint32_t count = number(); count > 0; --count) {
      GoldenCase::Array& array = c->arrays_[take(number())];
      array.type = take(2);
      const std::string elements = take(number() * size_of_type(array.type));
      const auto* bytes = reinterpret_cast<const std::byte*>(elements.data());
      array.bytes.assign(bytes, bytes + elements.size());
    }
  }

  uint32_t number() {
    uint32_t value;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }

  std::string take(size_t count) {
    if (data_.size() - at_ < count) throw std::runtime_error("golden file: ends too early");
    at_ += count;
    return data_.substr(at_ - count, count);
  }

  std::string data_;
  size_t at_ = 0;
};

std::vector<GoldenCase> read_golden_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  return GoldenReader({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}).read();
}

}  // namespace cuflash::test
