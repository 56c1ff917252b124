// SPDX-License-Identifier: MIT
#include <algorithm>
#include <set>

#include "bench.h"
#include "buffer.h"
#include "failure.h"
#include "registration.h"

namespace cuflash::bench {
namespace {

constexpr int kMatmulSize = 8192;
constexpr size_t kCopyBytes = size_t{2} << 30;

double measure_matmul(Lab& lab, benchmark::State& state, cuflashDataType_t dtype) {
  const int n = kMatmulSize;
  const size_t bytes = size_t{n} * n * static_cast<size_t>(element_bytes(dtype));
  Buffer a(bytes, CUFLASH_DEVICE_CUDA), b(bytes, CUFLASH_DEVICE_CUDA), c(bytes, CUFLASH_DEVICE_CUDA);
  a.fill_normal(dtype, 1);  // zeros would run faster than data
  b.fill_normal(dtype, 2);
  const auto matrix = [&](const Buffer& buffer) { return Matrices{buffer.data(), n, n, n, 0}; };
  const Call call = [&](cudaStream_t stream) {
    lab.cublas->multiply(dtype, 1, matrix(a), matrix(b), 0, matrix(c), 1, stream);
  };
  const Samples samples = lab.timer->measure(call, Temperature::kCold, lab.sample_rule());
  const double flops_per_second = 2.0 * n * n * n / samples.median();
  lab.matmul_flops_per_second[dtype] = flops_per_second;
  add_samples(state, samples);
  state.counters["TFLOP/s"] = 1e-12 * flops_per_second;
  return samples.median();
}

double measure_copy(Lab& lab, benchmark::State& state) {
  const size_t bytes = std::min(kCopyBytes, lab.gpu->memory_bytes / 8);
  Buffer from(bytes, CUFLASH_DEVICE_CUDA), to(bytes, CUFLASH_DEVICE_CUDA);
  from.fill_normal(CUFLASH_R_32F, 1);
  const Call call = [&](cudaStream_t stream) {
    require(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  };
  const Samples samples = lab.timer->measure(call, Temperature::kCold, lab.sample_rule());
  lab.copy_bytes_per_second = 2.0 * static_cast<double>(bytes) / samples.median();
  add_samples(state, samples);
  state.counters["GB/s"] = 1e-9 * *lab.copy_bytes_per_second;
  return samples.median();
}

}  // namespace

void register_ceilings(Lab& lab, const std::vector<Planned>& planned) {
  std::set<cuflashDataType_t> dtypes;
  for (const Planned& one : planned) {
    if (one.kernel.device == CUFLASH_DEVICE_CUDA && one.why_not.empty()) dtypes.insert(one.problem.dtype);
  }
  if (dtypes.empty()) return;
  register_benchmark(lab, "ceiling/copy", benchmark::kMillisecond, [&lab](benchmark::State& state) {
    return measure_copy(lab, state);
  });
  if (!lab.cublas) return;
  for (const cuflashDataType_t dtype : dtypes) {
    const std::string name = std::string("ceiling/matmul/") + dtype_name(dtype);
    register_benchmark(lab, name, benchmark::kMillisecond, [&lab, dtype](benchmark::State& state) {
      return measure_matmul(lab, state, dtype);
    });
  }
}

}  // namespace cuflash::bench
