// SPDX-License-Identifier: MIT
// Causal grouped-query attention, forward and backward, through the C ABI: on the GPU if there is one, else on the CPU.
// Prints the kernel that ran, its error against an fp64 reference that shares no code with the library, and its speed.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "buffers.h"
#include "reference.h"

namespace demo {
namespace {

constexpr Shape kCheckedShape = {.batch = 2, .num_heads = 6, .num_heads_k = 2, .seqlen = 333, .head_dim = 64};
constexpr Shape kTimedOnGpu = {.batch = 4, .num_heads = 16, .num_heads_k = 16, .seqlen = 2048, .head_dim = 64};
constexpr Shape kTimedOnHost = {.batch = 1, .num_heads = 8, .num_heads_k = 8, .seqlen = 1024, .head_dim = 64};

void check(cuflashStatus_t status, const char* what) {
  if (status == CUFLASH_STATUS_SUCCESS) return;
  std::fprintf(
      stderr, "attention_demo: %s: %s: %s\n", what, cuflashGetStatusString(status), cuflashGetLastErrorMessage()
  );
  std::exit(1);
}

// What one problem needs in memory, and its two parameter structs.
template <class T>
struct Call {
  Call(const Shape& shape, cuflashDataType_t dtype, cuflashDevice_t device)
      : q(device, shape.query_size() * sizeof(T)),
        k(device, shape.key_size() * sizeof(T)),
        v(device, shape.key_size() * sizeof(T)),
        o(device, shape.query_size() * sizeof(T)),
        lse(device, shape.lse_size() * sizeof(float)),
        dout(device, shape.query_size() * sizeof(T)),
        dq(device, shape.query_size() * sizeof(T)),
        dk(device, shape.key_size() * sizeof(T)),
        dv(device, shape.key_size() * sizeof(T)) {
    const int64_t row_q = int64_t{shape.num_heads} * shape.head_dim;
    const int64_t row_k = int64_t{shape.num_heads_k} * shape.head_dim;
    const auto describe = [&](const Buffer& buffer, int64_t row_stride, auto* tensor) {
      *tensor = {buffer.data(), row_stride * shape.seqlen, row_stride, shape.head_dim};
    };
    const auto fill_common = [&](auto& p) {
      p.dtype = dtype;
      p.device = device;
      p.batch = shape.batch;
      p.num_heads = shape.num_heads;
      p.num_heads_k = shape.num_heads_k;
      p.seqlen_q = p.seqlen_k = shape.seqlen;
      p.head_dim = shape.head_dim;
      p.mask = CUFLASH_MASK_CAUSAL;
      p.softmax_lse = static_cast<float*>(lse.data());
      describe(q, row_q, &p.q);
      describe(k, row_k, &p.k);
      describe(v, row_k, &p.v);
      describe(o, row_q, &p.o);
    };
    check(cuflashForwardParamsInit(&forward, sizeof(forward)), "cuflashForwardParamsInit");
    check(cuflashBackwardParamsInit(&backward, sizeof(backward)), "cuflashBackwardParamsInit");
    fill_common(forward);
    fill_common(backward);
    describe(dout, row_q, &backward.dout);
    describe(dq, row_q, &backward.dq);
    describe(dk, row_k, &backward.dk);
    describe(dv, row_k, &backward.dv);

    size_t forward_size = 0, backward_size = 0;
    check(cuflashForwardGetWorkspaceSize(&forward, &forward_size), "cuflashForwardGetWorkspaceSize");
    check(cuflashBackwardGetWorkspaceSize(&backward, &backward_size), "cuflashBackwardGetWorkspaceSize");
    workspace_size = std::max(forward_size, backward_size);
  }

  Buffer q, k, v, o, lse, dout, dq, dk, dv;
  cuflashForwardParams_t forward{};
  cuflashBackwardParams_t backward{};
  size_t workspace_size = 0;
};

void synchronize(cuflashDevice_t device) {
  if (device == CUFLASH_DEVICE_CUDA) check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

std::vector<double> normal_values(size_t count, std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

// Largest error of any element, in units of the largest element.
double relative_error(const std::vector<double>& result, const std::vector<double>& expected) {
  double worst = 0.0, largest = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(result[i] - expected[i]);
    worst = std::isfinite(error) ? std::fmax(worst, error) : HUGE_VAL;
    if (worst == HUGE_VAL) break;
    largest = std::fmax(largest, std::fabs(expected[i]));
  }
  return worst / std::fmax(largest, 1e-300);
}

// The line of an explain text that names the kernel.
std::string chosen_line(const std::string& text) {
  const size_t found = text.find(" chosen: ");
  if (found == std::string::npos) return "no kernel: " + text;
  const size_t begin = text.find_first_not_of(' ', text.rfind('\n', found) + 1);
  return text.substr(begin, text.find('\n', found) - begin);
}

template <class T>
void print_kernels(const Call<T>& call) {
  char text[4096];
  check(cuflashForwardExplain(&call.forward, text, sizeof(text), nullptr), "cuflashForwardExplain");
  std::printf("  forward   %s\n", chosen_line(text).c_str());
  check(cuflashBackwardExplain(&call.backward, text, sizeof(text), nullptr), "cuflashBackwardExplain");
  std::printf("  backward  %s\n", chosen_line(text).c_str());
}

// Returns whether every error is within the limit.
template <class T>
bool compare_with_reference(const char* name, cuflashDataType_t dtype, double limit, cuflashDevice_t device) {
  const Shape& shape = kCheckedShape;
  Call<T> call(shape, dtype, device);
  Buffer workspace(device, call.workspace_size);

  std::mt19937 random(2024);
  Tensors t;
  t.q = normal_values(shape.query_size(), random);
  t.k = normal_values(shape.key_size(), random);
  t.v = normal_values(shape.key_size(), random);
  t.dout = normal_values(shape.query_size(), random);
  upload_rounded<T>(t.q, call.q);
  upload_rounded<T>(t.k, call.k);
  upload_rounded<T>(t.v, call.v);
  upload_rounded<T>(t.dout, call.dout);

  check(cuflashForward(&call.forward, workspace.data(), call.workspace_size, nullptr), "cuflashForward");
  check(cuflashBackward(&call.backward, workspace.data(), call.workspace_size, nullptr), "cuflashBackward");
  synchronize(device);
  reference(shape, &t);

  const double errors[] = {
      relative_error(download<T>(call.o), t.o),
      relative_error(download<float>(call.lse), t.lse),
      relative_error(download<T>(call.dq), t.dq),
      relative_error(download<T>(call.dk), t.dk),
      relative_error(download<T>(call.dv), t.dv)};
  const bool pass = *std::max_element(std::begin(errors), std::end(errors)) <= limit;
  std::printf("  %-5s", name);
  for (const double error : errors) std::printf(" %9.1e", error);
  std::printf("   %s (limit %.0e)\n", pass ? "ok" : "WRONG", limit);
  return pass;
}

// Median milliseconds of run() until its result is complete: a first impression, cuflash_bench measures properly.
template <class Run>
double median_milliseconds(cuflashDevice_t device, Run&& run) {
  constexpr int kRepeats = 5;
  run();  // warm-up
  synchronize(device);
  std::vector<double> times;
  for (int i = 0; i < kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    synchronize(device);
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times[kRepeats / 2];
}

template <class T>
void measure(const char* name, cuflashDataType_t dtype, const Shape& shape, cuflashDevice_t device) {
  Call<T> call(shape, dtype, device);
  Buffer workspace(device, call.workspace_size);
  std::mt19937 random(7);
  for (Buffer* buffer : {&call.q, &call.k, &call.v, &call.dout}) {
    std::vector<double> values = normal_values(buffer->bytes() / sizeof(T), random);
    upload_rounded<T>(values, *buffer);
  }
  const double forward = median_milliseconds(device, [&] {
    check(cuflashForward(&call.forward, workspace.data(), call.workspace_size, nullptr), "cuflashForward");
  });
  const double backward = median_milliseconds(device, [&] {
    check(cuflashBackward(&call.backward, workspace.data(), call.workspace_size, nullptr), "cuflashBackward");
  });
  std::printf("  %-5s forward %9.3f ms %8.1f GFLOP/s", name, forward, shape.flops(2) / forward * 1e-6);
  std::printf("   backward %9.3f ms %8.1f GFLOP/s\n", backward, shape.flops(5) / backward * 1e-6);
}

void print_shape(const char* title, const Shape& s) {
  std::printf(
      "\n%s: causal, batch %d, %d query and %d key heads, length %d, head_dim %d\n",
      title,
      s.batch,
      s.num_heads,
      s.num_heads_k,
      s.seqlen,
      s.head_dim
  );
}

int run(cuflashDevice_t device) {
  print_shape("Result", kCheckedShape);
  print_kernels(Call<float>(kCheckedShape, CUFLASH_R_32F, device));
  std::printf("  largest error against fp64, relative to the largest value\n");
  std::printf("  dtype         o       lse        dq        dk        dv\n");
  bool pass = compare_with_reference<float>("fp32", CUFLASH_R_32F, 1e-5, device);
  pass &= compare_with_reference<__half>("fp16", CUFLASH_R_16F, 4e-3, device);
  pass &= compare_with_reference<__nv_bfloat16>("bf16", CUFLASH_R_16BF, 3e-2, device);

  const Shape& timed = device == CUFLASH_DEVICE_CUDA ? kTimedOnGpu : kTimedOnHost;
  print_shape("Speed", timed);
  measure<float>("fp32", CUFLASH_R_32F, timed, device);
  measure<__nv_bfloat16>("bf16", CUFLASH_R_16BF, timed, device);
  std::printf("\n%s\n", pass ? "All results agree with the reference." : "A result DISAGREES with the reference.");
  return pass ? 0 : 1;
}

// Prints where attention will run.
cuflashDevice_t choose_device(const char* wanted) {
  if (std::strcmp(wanted, "host") != 0) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) {
      cudaDeviceProp properties;
      check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
      std::printf("Running on %s (sm_%d%d)\n", properties.name, properties.major, properties.minor);
      return CUFLASH_DEVICE_CUDA;
    }
    if (std::strcmp(wanted, "cuda") == 0) {
      check_cuda(error != cudaSuccess ? error : cudaErrorNoDevice, "no GPU");
    }
    std::printf("No GPU here (%s): ", cudaGetErrorString(error != cudaSuccess ? error : cudaErrorNoDevice));
  }
  std::printf("Running on the CPU\n");
  return CUFLASH_DEVICE_HOST;
}

}  // namespace
}  // namespace demo

int main(int argc, char** argv) {
  const bool has_device = argc == 3 && std::strcmp(argv[1], "--device") == 0;
  const char* device = has_device ? argv[2] : "auto";
  const bool known =
      std::strcmp(device, "auto") == 0 || std::strcmp(device, "cuda") == 0 || std::strcmp(device, "host") == 0;
  if ((argc != 1 && !has_device) || !known) {
    std::fprintf(stderr, "usage: %s [--device auto|cuda|host]\n", argv[0]);
    return 2;
  }
  std::printf("%s\n", cuflashGetBuildInfo());
  return demo::run(demo::choose_device(device));
}
