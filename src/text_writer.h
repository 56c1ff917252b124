// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

namespace cuflash {

// Appends formatted text to a caller's buffer, cuts what does not fit and counts all of it, as snprintf does.
class TextWriter {
 public:
  TextWriter(char* buffer, size_t size) : buffer_(buffer), size_(size) {
    if (size_ > 0) buffer_[0] = '\0';
  }

  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...);

  size_t length() const { return length_; }  // of the whole text, without its NUL

 private:
  char* buffer_;
  size_t size_;
  size_t length_ = 0;
};

}  // namespace cuflash
