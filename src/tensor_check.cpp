// SPDX-License-Identifier: MIT
#include "tensor_check.h"

#include <algorithm>
#include <array>

namespace cuflash {
namespace {

constexpr int64_t kVectorBytes = 16;

struct Dimension {
  const char* name;
  int64_t extent;
  int64_t stride;
};

}  // namespace

Status TensorCheck::input(const char* name, const ConstTensor& tensor, const Extents& extents) {
  return add(name, tensor, extents, /*is_output=*/false);
}

Status TensorCheck::output(const char* name, const Tensor& t, const Extents& extents) {
  return add(name, {t.data, t.batch_stride, t.row_stride, t.head_stride}, extents, /*is_output=*/true);
}

Status TensorCheck::row_values(const char* name, const float* data, int64_t count) {
  CUFLASH_REQUIRE(data != nullptr || count == 0 || !pointers_required_, "%s must not be NULL", name);
  return optional_row_values(name, data, count, /*is_output=*/false);
}

Status TensorCheck::optional_row_values(const char* name, const float* data, int64_t count, bool is_output) {
  return add_words(name, data, count, is_output);
}

Status TensorCheck::small_input(const char* name, const void* data, int64_t count) {
  return add_words(name, data, count, /*is_output=*/false);
}

Status TensorCheck::add_words(const char* name, const void* data, int64_t count, bool is_output) {
  constexpr uintptr_t kWordBytes = 4;
  const auto address = reinterpret_cast<uintptr_t>(data);
  CUFLASH_REQUIRE(address % kWordBytes == 0, "%s (%p) must be aligned to 4 bytes", name, data);
  if (data == nullptr || count == 0) return Status();
  CUFLASH_REQUIRE(
      static_cast<uintptr_t>(count) <= (UINTPTR_MAX - address) / kWordBytes,
      "%s (%p) passes the end of the address space: it has %lld elements",
      name,
      data,
      static_cast<long long>(count)
  );
  memory_.add({name, address, address + static_cast<uintptr_t>(count) * kWordBytes - 1, is_output, /*dense=*/true});
  return Status();
}

Status TensorCheck::add(const char* name, const ConstTensor& tensor, const Extents& extents, bool is_output) {
  std::array<Dimension, 3> dimensions = {
      Dimension{"batch_stride", extents.batch, tensor.batch_stride},
      Dimension{"row_stride", extents.rows, tensor.row_stride},
      Dimension{"head_stride", extents.heads, tensor.head_stride}};
  for (const Dimension& d : dimensions) {
    CUFLASH_REQUIRE(d.stride >= 0, "%s.%s (%lld) must not be negative", name, d.name, static_cast<long long>(d.stride));
  }
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  CUFLASH_REQUIRE(
      address % static_cast<uintptr_t>(element_bytes_) == 0,
      "%s.data (%p) must be aligned to its elements of %lld bytes",
      name,
      tensor.data,
      static_cast<long long>(element_bytes_)
  );
  if (extents.empty()) return Status();
  CUFLASH_REQUIRE(tensor.data != nullptr || !pointers_required_, "%s.data must not be NULL", name);

  // From the innermost dimension outwards: span is the number of elements from the first to the last so far.
  std::sort(dimensions.begin(), dimensions.end(), [](const Dimension& x, const Dimension& y) {
    return x.stride < y.stride;
  });
  int64_t span = extents.dim;
  bool dense = true;
  unaligned_ |= address % kVectorBytes != 0;
  for (const Dimension& d : dimensions) {
    if (d.extent == 1) continue;
    CUFLASH_REQUIRE(
        !is_output || d.stride >= span,
        "%s.%s (%lld) must be at least %lld: elements of an output must not coincide",
        name,
        d.name,
        static_cast<long long>(d.stride),
        static_cast<long long>(span)
    );
    unaligned_ |= d.stride % (kVectorBytes / element_bytes_) != 0;
    dense &= d.stride == span;
    int64_t distance = 0, bytes = 0;
    const bool overflow =
        __builtin_mul_overflow(d.extent - 1, d.stride, &distance) || __builtin_add_overflow(span, distance, &span) ||
        __builtin_mul_overflow(span, element_bytes_, &bytes) || static_cast<uint64_t>(bytes) > UINTPTR_MAX - address;
    CUFLASH_REQUIRE(
        !overflow,
        "%s.%s (%lld) is too large: with extent %lld the tensor passes the end of the address space",
        name,
        d.name,
        static_cast<long long>(d.stride),
        static_cast<long long>(d.extent)
    );
  }
  if (tensor.data != nullptr) {
    memory_.add({name, address, address + static_cast<uintptr_t>(span * element_bytes_) - 1, is_output, dense});
  }
  return Status();
}

}  // namespace cuflash
