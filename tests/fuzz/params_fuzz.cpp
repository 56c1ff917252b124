// SPDX-License-Identifier: MIT
// Bytes become the params of one call, hostile values included; every entry point must answer them with a status and a
// message, without a fault. Launches go to the fake runtime. On the host the kernel really runs, over buffers that end
// where the largest problem that is drawn ends, with lengths that are as hostile as the rest.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cuflash/cuflash.h"
#include "fake_runtime.h"

namespace cuflash::test {
namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s; last message: %s\n", what, cuflashGetLastErrorMessage());
  std::abort();
}

// Takes values from the input; zeros when it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  template <class T>
  T raw() {
    T value{};
    const size_t count = sizeof(T) < size_ ? sizeof(T) : size_;
    std::memcpy(&value, data_, count);
    data_ += count;
    size_ -= count;
    return value;
  }

  bool one_in(unsigned n) { return raw<uint8_t>() % n == n - 1; }

  template <class T, size_t kSize>
  T pick(const T (&values)[kSize]) {
    return values[raw<uint8_t>() % kSize];
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Limits of the problems that run on the host: small enough for buffers of kHostBytes.
constexpr int32_t kHostMaxExtent = 4;
constexpr int64_t kHostMaxStride = 512;
constexpr size_t kHostBytes = 64 * 1024;

// Nothing is ever read behind these on the fake device.
constexpr uintptr_t kFakeBase = uintptr_t{1} << 45;
constexpr uintptr_t kFakeStep = uintptr_t{1} << 40;

class Addresses {
 public:
  explicit Addresses(bool on_host) : on_host_(on_host) {}

  // Null, a good address, one that is too little aligned, one that another tensor has, or any number.
  void* tensor(Input& input) {
    const unsigned choice = input.raw<uint8_t>();
    if (choice % 32 == 0) return nullptr;
    char* fresh = next();
    if (choice % 32 == 1) return fresh + 1 + choice / 64;
    if (choice % 32 == 2) return base(0);
    if (choice % 32 == 3 && !on_host_) return reinterpret_cast<void*>(input.raw<uintptr_t>());
    return fresh + choice / 32 * 4;
  }

  // Length arrays of the host hold what the input says.
  const int32_t* lengths(Input& input) {
    const unsigned choice = input.raw<uint8_t>();
    if (choice % 4 != 3) return nullptr;
    auto* values = reinterpret_cast<int32_t*>(next());
    if (on_host_) {
      for (int i = 0; i <= kHostMaxExtent; ++i)
        values[i] = input.one_in(4) ? input.raw<int32_t>() : input.raw<uint8_t>() % 8;
    }
    return reinterpret_cast<const int32_t*>(reinterpret_cast<char*>(values) + (choice == 255 ? 2 : 0));
  }

  void* workspace(size_t bytes) {
    if (!on_host_) return reinterpret_cast<void*>(kFakeBase - kFakeStep);
    require(bytes <= kHostBytes, "a tiny problem needs a small workspace");
    return next();
  }

 private:
  static constexpr int kCount = 24;

  char* base(int index) {
    alignas(256) static char memory[kCount][kHostBytes];
    require(index < kCount, "the fuzzer has enough buffers");
    if (on_host_) return memory[index];
    return reinterpret_cast<char*>(kFakeBase + static_cast<uintptr_t>(index) * kFakeStep);
  }
  char* next() { return base(used_++); }

  bool on_host_;
  int used_ = 0;
};

int32_t extent(Input& input, bool on_host) {
  if (on_host) return input.raw<uint8_t>() % (kHostMaxExtent + 1);
  constexpr int32_t kValues[] = {0, 1, 2, 4, 7, 8, 64, 129, 4096, 65536, 1 << 20, INT32_MAX, -1, INT32_MIN};
  return input.one_in(8) ? input.raw<int32_t>() : input.pick(kValues);
}

int32_t head_dim(Input& input, bool on_host) {
  if (on_host) return input.raw<uint8_t>() % 10;
  constexpr int32_t kValues[] = {0, 1, 8, 32, 33, 64, 100, 128, 192, 255, 256, 257, -1};
  return input.pick(kValues);
}

int64_t stride(Input& input, bool on_host) {
  const int64_t small = input.raw<uint16_t>() % (kHostMaxStride + 1);
  if (on_host) return input.one_in(16) ? -small : small;
  constexpr int64_t kValues[] = {
      0, 1, 64, 4096, int64_t{1} << 31, int64_t{1} << 40, int64_t{1} << 61, INT64_MAX, -1, INT64_MIN};
  return input.one_in(2) ? small : input.pick(kValues);
}

float number(Input& input) {
  constexpr float kValues[] = {0.0f, 1.0f, -0.5f, 30.0f, 1e-38f, 3e38f};
  return input.one_in(8) ? input.raw<float>() : input.pick(kValues);
}

// Any value one time in eight, or else one of the few that an enumeration has.
int32_t choice(Input& input, int32_t count) {
  return input.one_in(8) ? input.raw<int32_t>() : static_cast<int32_t>(input.raw<uint8_t>()) % count;
}

template <class TensorT>
void draw_tensor(Input& input, Addresses& addresses, bool on_host, TensorT* tensor) {
  tensor->data = addresses.tensor(input);
  tensor->batch_stride = stride(input, on_host);
  tensor->row_stride = stride(input, on_host);
  tensor->head_stride = stride(input, on_host);
}

template <class Params>
void draw_tensors(Input& input, Addresses& addresses, bool on_host, Params* p) {
  draw_tensor(input, addresses, on_host, &p->q);
  draw_tensor(input, addresses, on_host, &p->k);
  draw_tensor(input, addresses, on_host, &p->v);
  draw_tensor(input, addresses, on_host, &p->o);
  p->softmax_lse = static_cast<float*>(addresses.tensor(input));
  if constexpr (std::is_same_v<Params, cuflashBackwardParams_t>) {
    draw_tensor(input, addresses, on_host, &p->dout);
    draw_tensor(input, addresses, on_host, &p->dq);
    draw_tensor(input, addresses, on_host, &p->dk);
    draw_tensor(input, addresses, on_host, &p->dv);
    p->dlse = input.one_in(2) ? static_cast<const float*>(addresses.tensor(input)) : nullptr;
    p->deterministic = choice(input, 2);
  }
}

// Contiguous tensors: the calls that are likely to be accepted.
template <class Params>
void make_contiguous(Params* p) {
  const auto set = [](auto* tensor, int64_t rows, int64_t heads, int64_t dim) {
    tensor->head_stride = dim;
    tensor->row_stride = heads * dim;
    tensor->batch_stride = rows * heads * dim;
  };
  const auto rows = [](const int32_t* cu_seqlens, int64_t total, int64_t seqlen) {
    return cu_seqlens != nullptr ? total : seqlen;
  };
  const bool sane = p->num_heads >= 0 && p->num_heads_k >= 0 && p->seqlen_q >= 0 && p->seqlen_k >= 0 &&
                    p->num_heads < 4096 && p->num_heads_k < 4096 && p->total_q >= 0 && p->total_q <= INT32_MAX &&
                    p->total_k >= 0 && p->total_k <= INT32_MAX;
  if (!sane) return;
  const int64_t rows_q = rows(p->cu_seqlens_q, p->total_q, p->seqlen_q),
                rows_k = rows(p->cu_seqlens_k, p->total_k, p->seqlen_k);
  const int64_t dim_v = p->head_dim_v == 0 ? p->head_dim : p->head_dim_v;
  set(&p->q, rows_q, p->num_heads, p->head_dim);
  set(&p->k, rows_k, p->num_heads_k, p->head_dim);
  set(&p->v, rows_k, p->num_heads_k, dim_v);
  set(&p->o, rows_q, p->num_heads, dim_v);
  if constexpr (std::is_same_v<Params, cuflashBackwardParams_t>) {
    set(&p->dout, rows_q, p->num_heads, dim_v);
    set(&p->dq, rows_q, p->num_heads, p->head_dim);
    set(&p->dk, rows_k, p->num_heads_k, p->head_dim);
    set(&p->dv, rows_k, p->num_heads_k, dim_v);
  }
}

template <class Params>
Params draw_params(Input& input, Addresses& addresses, bool on_host) {
  constexpr int32_t kDTypes[] = {CUFLASH_R_32F, CUFLASH_R_16F, CUFLASH_R_16BF};
  constexpr const char* kKernels[] = {nullptr, nullptr, nullptr, nullptr, nullptr, "scalar", "host", "", "none such"};
  Params p{};
  p.dtype = input.one_in(16) ? input.raw<int32_t>() : input.pick(kDTypes);
  p.device = on_host ? CUFLASH_DEVICE_HOST : CUFLASH_DEVICE_CUDA;
  p.batch = extent(input, on_host);
  p.num_heads = extent(input, on_host);
  p.num_heads_k = input.one_in(2) ? p.num_heads : extent(input, on_host);
  p.seqlen_q = extent(input, on_host);
  p.seqlen_k = extent(input, on_host);
  p.head_dim = head_dim(input, on_host);
  p.head_dim_v = head_dim(input, on_host);
  p.mask = choice(input, 3);
  p.alignment = choice(input, 2);
  if (p.mask == CUFLASH_MASK_WINDOW || input.one_in(16)) {
    p.window_left = extent(input, on_host);
    p.window_right = input.one_in(2) ? -1 : extent(input, on_host);
  }
  p.softmax_scale = number(input);
  p.softcap = input.one_in(2) ? number(input) : 0.0f;
  p.cu_seqlens_q = addresses.lengths(input);
  p.cu_seqlens_k = addresses.lengths(input);
  p.seqused_q = addresses.lengths(input);
  p.seqused_k = addresses.lengths(input);
  if (p.cu_seqlens_q != nullptr || input.one_in(16))
    p.total_q = on_host ? input.raw<uint8_t>() % 9 : extent(input, false);
  if (p.cu_seqlens_k != nullptr || input.one_in(16))
    p.total_k = on_host ? input.raw<uint8_t>() % 9 : extent(input, false);
  if (input.one_in(4)) {
    p.alibi_slopes = static_cast<const float*>(addresses.tensor(input));
    p.alibi_batch_stride = input.one_in(2) ? stride(input, on_host) : 0;
  }
  draw_tensors(input, addresses, on_host, &p);
  if (!input.one_in(3)) make_contiguous(&p);
  p.kernel = input.pick(kKernels);
  return p;
}

// The caller's struct: exactly as long as it says, so that a read past its end is seen.
template <class Params>
std::vector<unsigned char> caller_struct(Input& input, Params p) {
  p.struct_size = sizeof(p);
  if (input.one_in(8)) p.struct_size = sizeof(p) + input.raw<uint8_t>();
  if (input.one_in(32)) p.struct_size = input.raw<size_t>();
  const size_t bytes = p.struct_size < sizeof(size_t) ? sizeof(size_t) : p.struct_size > 4096 ? 4096 : p.struct_size;
  std::vector<unsigned char> memory(bytes, 0);
  std::memcpy(memory.data(), &p, bytes < sizeof(p) ? bytes : sizeof(p));
  // Any byte of the reserved fields and of the tail; before them are pointers that the library may read through.
  constexpr size_t kReserved = offsetof(Params, bias);
  if (input.one_in(16) && bytes > kReserved) {
    memory[kReserved + input.raw<uint16_t>() % (bytes - kReserved)] = input.raw<uint8_t>();
  }
  return memory;
}

// What holds of any params.
void require_answer(cuflashStatus_t status) {
  require(status >= CUFLASH_STATUS_SUCCESS && status <= CUFLASH_STATUS_NO_DEVICE, "the status is a known one");
  require(status != CUFLASH_STATUS_INTERNAL_ERROR, "no internal error");
  require(status != CUFLASH_STATUS_CUDA_ERROR, "no launch that a GPU refuses");
  require(status == CUFLASH_STATUS_SUCCESS || cuflashGetLastErrorMessage()[0] != '\0', "a failure has a message");
}

template <class Params>
struct Api;
template <>
struct Api<cuflashForwardParams_t> {
  static constexpr auto size = cuflashForwardGetWorkspaceSize;
  static constexpr auto run = cuflashForward;
  static constexpr auto explain = cuflashForwardExplain;
  static constexpr auto preload = cuflashForwardPreload;
};
template <>
struct Api<cuflashBackwardParams_t> {
  static constexpr auto size = cuflashBackwardGetWorkspaceSize;
  static constexpr auto run = cuflashBackward;
  static constexpr auto explain = cuflashBackwardExplain;
  static constexpr auto preload = cuflashBackwardPreload;
};

template <class Params>
void fuzz_call(Input& input, bool on_host) {
  using Functions = Api<Params>;
  Addresses addresses(on_host);
  const Params drawn = draw_params<Params>(input, addresses, on_host);
  // The host kernel reads what params point to: it is given the drawn ones alone.
  const std::vector<unsigned char> memory = on_host ? std::vector<unsigned char>() : caller_struct(input, drawn);
  Params plain = drawn;
  plain.struct_size = sizeof(plain);
  const auto* params = on_host ? &plain : reinterpret_cast<const Params*>(memory.data());

  size_t needed = 0, text_size = 0;
  const cuflashStatus_t sized = Functions::size(params, &needed);
  require_answer(sized);

  char text[256];
  const size_t text_room = input.raw<uint8_t>();
  require_answer(Functions::explain(params, text, text_room, &text_size));
  if (text_size > 0 && text_room > 0) require(std::memchr(text, 0, text_room) != nullptr, "the text is terminated");
  require_answer(Functions::preload(params));
  require(fake_runtime().launches().empty(), "only a run launches");

  void* workspace = sized == CUFLASH_STATUS_SUCCESS ? addresses.workspace(needed) : nullptr;
  const cuflashStatus_t ran = Functions::run(params, workspace, needed, nullptr);
  require_answer(ran);
  require(ran == CUFLASH_STATUS_SUCCESS || fake_runtime().launches().empty(), "a refused call launches nothing");
  require(ran != CUFLASH_STATUS_WORKSPACE_TOO_SMALL, "the size query says what a run takes");
  require(
      sized == CUFLASH_STATUS_SUCCESS || ran != CUFLASH_STATUS_SUCCESS, "a run refuses what the size query refuses"
  );
}

}  // namespace
}  // namespace cuflash::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cuflash::test;
  constexpr int kSms[] = {60, 75, 80, 90, 120};
  Input input(data, size);
  fake_runtime().reset();
  fake_runtime().set_device({.sm = input.pick(kSms)});
  const auto mode = input.raw<uint8_t>();
  const bool on_host = mode % 4 == 0;
  if (mode / 4 % 2 == 0) {
    fuzz_call<cuflashForwardParams_t>(input, on_host);
  } else {
    fuzz_call<cuflashBackwardParams_t>(input, on_host);
  }
  return 0;
}
