// SPDX-License-Identifier: MIT
#include "case_sets.h"

#include <algorithm>

namespace cuflash::bench {
namespace {

constexpr int32_t kGridTokens = 16384;
constexpr int32_t kGridHidden = 2048;

template <class T>
std::vector<T> given_or(const std::vector<T>& given, std::vector<T> otherwise) {
  return given.empty() ? otherwise : given;
}

template <class T>
bool wanted(const std::vector<T>& given, const T& value) {
  return given.empty() || std::find(given.begin(), given.end(), value) != given.end();
}

Shape square(int32_t batch, int32_t num_heads, int32_t seqlen, int32_t head_dim) {
  return {batch, num_heads, num_heads, seqlen, seqlen, head_dim, head_dim};
}

Shape grid_shape(int32_t seqlen, int32_t head_dim) {
  return square(std::max(1, kGridTokens / seqlen), std::max(1, kGridHidden / head_dim), seqlen, head_dim);
}

Case make_case(cuflashOperation_t operation, cuflashDataType_t dtype, const Shape& shape, const Mask& mask) {
  return {
      .operation = operation,
      .dtype = dtype,
      .batch = shape.batch,
      .num_heads = shape.num_heads,
      .num_heads_k = shape.num_heads_k,
      .seqlen_q = shape.seqlen_q,
      .seqlen_k = shape.seqlen_k,
      .head_dim = shape.head_dim,
      .head_dim_v = shape.head_dim_v,
      .mask = mask.mask,
      .window_left = mask.window_left,
      .window_right = mask.window_right,
  };
}

struct Product {
  std::vector<cuflashDataType_t> dtypes;
  std::vector<Shape> shapes;
  std::vector<Mask> masks;
};

std::vector<Case> expand(const Options& options, const Product& product) {
  std::vector<Case> cases;
  std::vector<cuflashOperation_t> operations = {CUFLASH_OP_FORWARD, CUFLASH_OP_BACKWARD};
  if (options.overhead.has_value()) operations = options.operations;  // --op was given
  for (const cuflashOperation_t operation : operations) {
    for (const cuflashDataType_t dtype : product.dtypes) {
      for (const Mask& mask : product.masks) {
        for (const Shape& shape : product.shapes) cases.push_back(make_case(operation, dtype, shape, mask));
      }
    }
  }
  return cases;
}

std::vector<Case> shape_cases(const Options& options) {
  return expand(
      options, {given_or(options.dtypes, {CUFLASH_R_16BF}), options.shapes, given_or(options.masks, {Mask{}})}
  );
}

const std::vector<Mask> kFullAndCausal = {{CUFLASH_MASK_NONE}, {CUFLASH_MASK_CAUSAL}};

std::vector<Case> grid_cases(const Options& options) {
  std::vector<Shape> shapes;
  for (const int32_t head_dim : given_or(options.head_dims, {64, 128, 256})) {
    for (const int32_t seqlen : given_or(options.seqlens, {512, 1024, 2048, 4096, 8192, 16384})) {
      shapes.push_back(grid_shape(seqlen, head_dim));
    }
  }
  return expand(options, {given_or(options.dtypes, {CUFLASH_R_16BF}), shapes, given_or(options.masks, kFullAndCausal)});
}

// Every dtype, head_dim 64 and 128, full and causal; one causal case of the grid; grouped heads with unequal lengths.
std::vector<Case> quick_cases(const Options& options) {
  const std::vector<Product> products = {
      {{CUFLASH_R_16BF}, {square(4, 32, 1024, 64), square(4, 16, 1024, 128)}, kFullAndCausal},
      {{CUFLASH_R_16F, CUFLASH_R_32F}, {square(4, 16, 1024, 128)}, {{CUFLASH_MASK_CAUSAL}}},
      {{CUFLASH_R_16BF}, {grid_shape(4096, 128)}, {{CUFLASH_MASK_CAUSAL}}},
      {{CUFLASH_R_16BF}, {{4, 16, 2, 512, 2048, 128, 128}}, {{CUFLASH_MASK_CAUSAL}}},
  };
  std::vector<Case> cases;
  for (const Product& product : products) {
    for (const Case& c : expand(options, product)) {
      const Mask mask{c.mask, c.window_left, c.window_right};
      if (!wanted(options.dtypes, c.dtype) || !wanted(options.head_dims, c.head_dim) || !wanted(options.masks, mask)) {
        continue;
      }
      cases.push_back(c);
    }
  }
  std::stable_sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) { return a.operation < b.operation; });
  return cases;
}

}  // namespace

std::vector<Case> gpu_cases(const Options& options) {
  if (!options.shapes.empty()) return shape_cases(options);
  return options.quick ? quick_cases(options) : grid_cases(options);
}

std::vector<Case> host_cases(const Options& options) {
  if (!options.shapes.empty()) return shape_cases(options);
  return expand(
      options,
      {given_or(options.dtypes, {CUFLASH_R_32F, CUFLASH_R_16BF}),
       {square(1, 8, 1024, 64)},
       given_or(options.masks, kFullAndCausal)}
  );
}

}  // namespace cuflash::bench
