// SPDX-License-Identifier: MIT
// Matrix products of cuBLAS, which is loaded at run time: the benchmark builds and starts without it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "cuflash/cuflash.h"

namespace cuflash::bench {

// A batch of row-major matrices, or of the transposes of stored ones.
struct Matrices {
  void* data;
  int rows;
  int columns;
  int64_t row_stride;  // as stored
  int64_t batch_stride;
  bool transposed = false;

  Matrices transpose() const { return {data, columns, rows, row_stride, batch_stride, !transposed}; }
};

class Cublas {
 public:
  // path empty: libcublas.so.13 or .12 as the loader finds it. On failure null, and *reason says why.
  static std::unique_ptr<Cublas> open(const std::string& path, std::string* reason);
  ~Cublas();

  // c = alpha * a b + beta * c for each of the batch; c is not transposed. Sums in fp32, and fp32 without TF32.
  void multiply(
      cuflashDataType_t dtype,
      float alpha,
      const Matrices& a,
      const Matrices& b,
      float beta,
      const Matrices& c,
      int batch,
      cudaStream_t stream
  ) const;

  std::string version() const;

 private:
  struct Functions;
  Cublas();

  void* library_ = nullptr;
  void* handle_ = nullptr;
  std::unique_ptr<Functions> functions_;
};

}  // namespace cuflash::bench
