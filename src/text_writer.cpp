// SPDX-License-Identifier: MIT
#include "text_writer.h"

#include <cstdarg>
#include <cstdio>

namespace cuflash {

void TextWriter::print(const char* format, ...) {
  char* end = length_ < size_ ? buffer_ + length_ : nullptr;
  const size_t room = length_ < size_ ? size_ - length_ : 0;
  std::va_list arguments;
  va_start(arguments, format);
  const int count = std::vsnprintf(end, room, format, arguments);
  va_end(arguments);
  if (count > 0) length_ += static_cast<size_t>(count);
}

}  // namespace cuflash
