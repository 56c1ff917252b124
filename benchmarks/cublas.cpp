// SPDX-License-Identifier: MIT
#include "cublas.h"

#include <dlfcn.h>

#include <library_types.h>

#include "failure.h"

namespace cuflash::bench {
namespace {

// Part of cuBLAS's binary interface, the same in versions 12 and 13.
constexpr int kOpN = 0;
constexpr int kOpT = 1;
constexpr int kCompute32F = 68;
constexpr int kGemmDefault = -1;

void require_cublas(int status, const char* call) {
  if (status != 0) throw Failure(std::string(call) + ": cuBLAS status " + std::to_string(status));
}

void* load(const std::string& path, std::string* reason) {
  if (!path.empty()) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) *reason = dlerror();
    return library;
  }
  for (const char* name : {"libcublas.so.13", "libcublas.so.12"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  *reason = "no libcublas.so.13 or libcublas.so.12 in the loader's path (LD_LIBRARY_PATH or --cublas PATH names one)";
  return nullptr;
}

}  // namespace

struct Cublas::Functions {
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*set_stream)(void* handle, cudaStream_t stream);
  int (*get_version)(void* handle, int* version);
  int (*gemm
  )(void* handle,
    int op_a,
    int op_b,
    int m,
    int n,
    int k,
    const void* alpha,
    const void* a,
    cudaDataType_t a_type,
    int lda,
    long long stride_a,
    const void* b,
    cudaDataType_t b_type,
    int ldb,
    long long stride_b,
    const void* beta,
    void* c,
    cudaDataType_t c_type,
    int ldc,
    long long stride_c,
    int batch,
    int compute_type,
    int algorithm);
};

Cublas::Cublas() : functions_(std::make_unique<Functions>()) {}

Cublas::~Cublas() {
  if (handle_ != nullptr) functions_->destroy(handle_);
  // The library stays loaded: cuBLAS may still own threads.
}

std::unique_ptr<Cublas> Cublas::open(const std::string& path, std::string* reason) {
  std::unique_ptr<Cublas> cublas(new Cublas);
  cublas->library_ = load(path, reason);
  if (cublas->library_ == nullptr) return nullptr;

  bool complete = true;
  const auto find = [&]<class Function>(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(cublas->library_, name));
    if (function == nullptr) {
      complete = false;
      *reason = std::string("the cuBLAS library has no ") + name;
    }
  };
  Functions& f = *cublas->functions_;
  find("cublasCreate_v2", f.create);
  find("cublasDestroy_v2", f.destroy);
  find("cublasSetStream_v2", f.set_stream);
  find("cublasGetVersion_v2", f.get_version);
  find("cublasGemmStridedBatchedEx", f.gemm);
  if (!complete) return nullptr;
  if (const int status = f.create(&cublas->handle_); status != 0) {
    cublas->handle_ = nullptr;
    *reason = "cublasCreate: cuBLAS status " + std::to_string(status);
    return nullptr;
  }
  return cublas;
}

// cuBLAS is column-major and so sees every stored matrix transposed. The transpose of c = a b is c' = b' a': the
// operands change places, and each is taken as stored unless its transpose is asked for.
void Cublas::multiply(
    cuflashDataType_t dtype,
    float alpha,
    const Matrices& a,
    const Matrices& b,
    float beta,
    const Matrices& c,
    int batch,
    cudaStream_t stream
) const {
  if (a.rows != c.rows || b.columns != c.columns || a.columns != b.rows) throw Failure("matrix shapes do not match");
  const auto type = static_cast<cudaDataType_t>(dtype);
  require_cublas(functions_->set_stream(handle_, stream), "cublasSetStream");
  require_cublas(
      functions_->gemm(
          handle_,
          b.transposed ? kOpT : kOpN,
          a.transposed ? kOpT : kOpN,
          c.columns,
          c.rows,
          a.columns,
          &alpha,
          b.data,
          type,
          static_cast<int>(b.row_stride),
          b.batch_stride,
          a.data,
          type,
          static_cast<int>(a.row_stride),
          a.batch_stride,
          &beta,
          c.data,
          type,
          static_cast<int>(c.row_stride),
          c.batch_stride,
          batch,
          kCompute32F,
          kGemmDefault
      ),
      "cublasGemmStridedBatchedEx"
  );
}

std::string Cublas::version() const {
  int version = 0;
  require_cublas(functions_->get_version(handle_, &version), "cublasGetVersion");
  return std::to_string(version);
}

}  // namespace cuflash::bench
