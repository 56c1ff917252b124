// SPDX-License-Identifier: MIT
#include "giant_case.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "support/conformance.h"
#include "support/cuda_check.h"
#include "support/parallel.h"
#include "support/random.h"
#include "support/reference.h"

namespace cuflash::test {
namespace {

constexpr Buffer kInputs[] = {Buffer::kQ, Buffer::kK, Buffer::kV, Buffer::kDout};
constexpr Buffer kGradients[] = {Buffer::kDq, Buffer::kDk, Buffer::kDv};

Scenario without_image(const std::string& line) {
  const Case c = case_of(line);
  return {c, make_geometry(c), {}};
}

size_t free_bytes() {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

std::string compare_row(
    const char* name, const Expected& expected, size_t row, DType dtype, const std::vector<std::byte>& got
) {
  const auto dim = static_cast<size_t>(expected.dim);
  for (size_t e = 0; e < dim; ++e) {
    const double value = load(dtype, got.data() + e * size_of(dtype));
    const double error = std::fabs(value - expected.value[row * dim + e]);
    if (error <= expected.allowed[row] && std::isfinite(expected.allowed[row])) continue;
    char text[160];
    std::snprintf(
        text,
        sizeof(text),
        "%s, element %zu, is %.9g, expected %.9g, allowed error %.3g",
        name,
        e,
        value,
        expected.value[row * dim + e],
        expected.allowed[row]
    );
    return text;
  }
  return "";
}

// The first text that is not empty; all samples are checked, on all cores.
template <class Sample, class Check>
std::string first_failure(const std::vector<Sample>& samples, Check check) {
  std::vector<std::string> wrong(samples.size());
  parallel_for(static_cast<int64_t>(samples.size()), [&](int64_t i) {
    try {
      wrong[static_cast<size_t>(i)] = check(samples[static_cast<size_t>(i)]);
    } catch (const std::exception& error) {
      wrong[static_cast<size_t>(i)] = error.what();
    }
  });
  const auto found = std::find_if(wrong.begin(), wrong.end(), [](const std::string& text) { return !text.empty(); });
  return found == wrong.end() ? "" : *found;
}

}  // namespace

DeviceBuffer::DeviceBuffer(size_t bytes) : bytes_(bytes) {
  check_cuda(cudaMalloc(&data_, std::max<size_t>(bytes, 1)), "cudaMalloc");
}

DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

GiantCase::GiantCase(const std::string& line)
    : forward_(without_image("op=fwd " + line)), backward_(without_image("op=bwd " + line)) {
  if (c().heads != c().heads_k) throw std::invalid_argument("heads of a giant case must not share keys: " + line);
}

size_t GiantCase::bytes() const {
  size_t bytes = 0;
  for (const Segment& segment : backward_.geometry.segments) bytes += segment.bytes;
  return bytes;
}

size_t GiantCase::most_workspace_bytes() const { return 2 * bytes() + (size_t{1} << 20); }

void GiantCase::place() {
  for (size_t i = 0; i < kNumBuffers; ++i) {
    const size_t bytes = backward_.geometry.segments[i].bytes;
    if (bytes == 0) continue;
    buffers_.push_back(std::make_unique<DeviceBuffer>(bytes));
    addresses_[i] = buffers_.back()->data();
  }
  uint64_t seed = 0;
  for (const Buffer buffer : kInputs) fill(buffer, c().dtype, ++seed);
  if (c().dlse) fill(Buffer::kDlse, DType::kFp32, ++seed);
  const auto copy = [&](Buffer buffer, const std::vector<int32_t>& values) {
    const size_t bytes = values.size() * sizeof(int32_t);
    if (bytes != 0) check_cuda(cudaMemcpy(data(buffer), values.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  };
  copy(Buffer::kCuSeqlensQ, backward_.geometry.q.cu_seqlens);
  copy(Buffer::kCuSeqlensK, backward_.geometry.k.cu_seqlens);
}

// A pattern of prime length again and again, so that no two rows are equal and a wrong offset reads something else.
void GiantCase::fill(Buffer buffer, DType dtype, uint64_t seed) {
  constexpr size_t kPeriod = 1'000'003;
  Random random(seed);
  std::vector<std::byte> pattern(kPeriod * size_of(dtype));
  for (size_t i = 0; i < kPeriod; ++i) store(dtype, pattern.data() + i * size_of(dtype), random.normal());
  const size_t bytes = backward_.geometry.segment(buffer).bytes;
  size_t filled = std::min(bytes, pattern.size());
  check_cuda(cudaMemcpy(data(buffer), pattern.data(), filled, cudaMemcpyHostToDevice), "cudaMemcpy");
  while (filled < bytes) {
    const size_t next = std::min(filled, bytes - filled);
    check_cuda(cudaMemcpy(data(buffer) + filled, data(buffer), next, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    filled += next;
  }
}

void GiantCase::poison(Buffer buffer) {
  check_cuda(cudaMemset(data(buffer), 0xFF, backward_.geometry.segment(buffer).bytes), "cudaMemset");
}

std::vector<Kernel> GiantCase::kernels(Op op) const {
  std::vector<Kernel> accepting;
  for (const Kernel& kernel : kernels_of(op, target().device())) {
    if (accepts(scenario(op), kernel.name)) accepting.push_back(kernel);
  }
  return accepting;
}

// A call uses the caller's buffers and the workspace, which is linear in them, and no other device memory.
std::string GiantCase::call(const Kernel& kernel) {
  const Call call(scenario(kernel.op), addresses_, target().device(), kernel.name);
  size_t workspace_bytes = 0;
  if (call.workspace_size(&workspace_bytes) != CUFLASH_STATUS_SUCCESS) return cuflashGetLastErrorMessage();
  if (workspace_bytes > most_workspace_bytes()) {
    return "a workspace of " + std::to_string(workspace_bytes) + " bytes for buffers of " + std::to_string(bytes());
  }
  const DeviceBuffer workspace(workspace_bytes);
  check_cuda(cudaMemset(workspace.data(), 0xFF, workspace_bytes), "cudaMemset");
  if (call.preload() != CUFLASH_STATUS_SUCCESS) return cuflashGetLastErrorMessage();
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const size_t before = free_bytes();
  if (call.run(workspace.data(), workspace_bytes, nullptr) != CUFLASH_STATUS_SUCCESS) {
    return cuflashGetLastErrorMessage();
  }
  const size_t during = free_bytes();
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const size_t after = free_bytes();
  if (during != before || after != before) {
    return "free device memory went from " + std::to_string(before) + " to " + std::to_string(std::min(during, after));
  }
  return "";
}

std::string GiantCase::run(const Kernel& kernel) {
  const Geometry& g = backward_.geometry;
  if (kernel.op == Op::kForward) {
    poison(Buffer::kO);
    poison(Buffer::kLse);
  } else {
    for (const Buffer buffer : kGradients) poison(buffer);
  }
  std::string wrong = call(kernel);
  if (!wrong.empty()) return wrong;
  wrong = first_failure(samples(g.q, g.k.seqlen), [&](const Sample& s) { return check_query_row(kernel.op, s); });
  if (!wrong.empty() || kernel.op == Op::kForward) return wrong;
  return first_failure(samples(g.k, g.q.seqlen), [&](const Sample& s) { return check_key_row(s); });
}

// From everywhere, and as many from the end: there the offsets are largest. Fewer where a row sees very many others.
std::vector<GiantCase::Sample> GiantCase::samples(const Side& side, int32_t rows_seen) const {
  constexpr int32_t kLastRows = 32;
  const int32_t count = std::clamp((1 << 20) / rows_seen, 8, 64);
  Random random(7);
  std::vector<Sample> samples;
  for (int32_t i = 0; i < count; ++i) {
    const bool at_end = i % 2 == 0;
    const size_t last = side.entries.size() - 1;
    const size_t entry = at_end ? last : static_cast<size_t>(random.below(static_cast<int64_t>(last) + 1));
    const int32_t length = side.entries[entry].length;
    const int32_t row =
        at_end ? length - 1 - random.between(0, std::min(length, kLastRows) - 1) : random.between(0, length - 1);
    samples.push_back({entry, i == 0 ? c().heads - 1 : random.between(0, c().heads - 1), i == 0 ? length - 1 : row});
  }
  return samples;
}

GiantCase::RowRange GiantCase::keys_of(size_t entry, int32_t query) const {
  const int32_t keys = forward_.geometry.k.entries[entry].length;
  const int32_t offset = c().align == Align::kBottomRight ? keys - forward_.geometry.q.entries[entry].length : 0;
  const bool window = c().mask == Mask::kWindow;
  const bool left = window && c().window_left >= 0;
  const bool right = c().mask == Mask::kCausal || (window && c().window_right >= 0);
  const int32_t begin = left ? std::max(0, query + offset - c().window_left) : 0;
  const int32_t end = right ? std::min(keys, query + offset + c().window_right + 1) : keys;
  return {begin, std::max(begin, end)};
}

GiantCase::RowRange GiantCase::queries_of(size_t entry, int32_t key) const {
  const auto sees = [&](int32_t query) {
    const RowRange keys = keys_of(entry, query);
    return keys.begin <= key && key < keys.end;
  };
  RowRange range{0, forward_.geometry.q.entries[entry].length};
  while (range.begin < range.end && !sees(range.begin)) ++range.begin;
  while (range.begin < range.end && !sees(range.end - 1)) --range.end;
  return range;
}

void GiantCase::fetch(const View& view, const Rows& rows, int32_t head, RowRange range, std::byte* to) const {
  const size_t element = size_of(c().dtype);
  const size_t width = static_cast<size_t>(view.dim) * element;
  const auto first = static_cast<size_t>(view.offset(rows.batch, rows.first + range.begin, head));
  const size_t pitch = static_cast<size_t>(view.row_stride) * element;
  const auto count = static_cast<size_t>(range.end - range.begin);
  check_cuda(
      cudaMemcpy2D(to, width, data(view.buffer) + first * element, pitch, width, count, cudaMemcpyDeviceToHost),
      "cudaMemcpy2D"
  );
}

void GiantCase::fetch_lse(Buffer buffer, size_t entry, int32_t head, RowRange range, float* to) const {
  const int64_t first = lse_index(c(), forward_.geometry.q, static_cast<int32_t>(entry), head, range.begin);
  const auto count = static_cast<size_t>(range.end - range.begin);
  check_cuda(
      cudaMemcpy(to, data(buffer) + static_cast<size_t>(first) * 4, count * 4, cudaMemcpyDeviceToHost), "cudaMemcpy"
  );
}

Scenario GiantCase::small(Op op, size_t entry, int32_t head, RowRange queries, RowRange keys) const {
  Case one;
  one.op = op;
  one.dtype = c().dtype;
  one.seqlen_q = queries.end - queries.begin;
  one.seqlen_k = keys.end - keys.begin;
  one.head_dim = c().head_dim;
  one.head_dim_v = c().head_dim_v;
  one.dlse = op == Op::kBackward && c().dlse;
  Scenario result{one, make_geometry(one), {}};
  result.image.resize(result.geometry.image_bytes);
  const Geometry& g = backward_.geometry;
  const Rows& query_rows = g.q.entries[entry];
  const Rows& key_rows = g.k.entries[entry];
  const auto copy = [&](const View& from, const View& to, const Rows& rows, int32_t of_head, RowRange range) {
    fetch(from, rows, of_head, range, result.data(to, 0, 0, 0));
  };
  copy(g.tensor_q, result.geometry.tensor_q, query_rows, head, queries);
  copy(g.tensor_k, result.geometry.tensor_k, key_rows, head, keys);
  copy(g.tensor_v, result.geometry.tensor_v, key_rows, head, keys);
  if (op == Op::kForward) return result;
  copy(g.tensor_o, result.geometry.tensor_o, query_rows, head, queries);
  copy(g.tensor_dout, result.geometry.tensor_dout, query_rows, head, queries);
  fetch_lse(Buffer::kLse, entry, head, queries, result.floats(Buffer::kLse));
  if (one.dlse) fetch_lse(Buffer::kDlse, entry, head, queries, result.floats(Buffer::kDlse));
  return result;
}

std::string GiantCase::check_query_row(Op op, const Sample& s) const {
  const RowRange queries{s.row, s.row + 1};
  const RowRange keys = keys_of(s.entry, s.row);
  const Reference reference = make_reference(small(op, s.entry, s.head, queries, keys));
  const Geometry& g = backward_.geometry;
  const std::string where =
      "[batch " + std::to_string(s.entry) + ", head " + std::to_string(s.head) + ", row " + std::to_string(s.row) + "]";
  const bool forward = op == Op::kForward;
  const View& view = forward ? g.tensor_o : g.tensor_dq;
  std::vector<std::byte> got(static_cast<size_t>(view.dim) * size_of(c().dtype));
  fetch(view, g.q.entries[s.entry], s.head, queries, got.data());
  const std::string name = (forward ? "o" : "dq") + where;
  const std::string wrong = compare_row(name.c_str(), forward ? reference.o : reference.dq, 0, c().dtype, got);
  if (!wrong.empty() || !forward) return wrong;
  std::vector<std::byte> lse(sizeof(float));
  fetch_lse(Buffer::kLse, s.entry, s.head, queries, reinterpret_cast<float*>(lse.data()));
  return compare_row(("lse" + where).c_str(), reference.lse, 0, DType::kFp32, lse);
}

std::string GiantCase::check_key_row(const Sample& s) const {
  const RowRange keys{s.row, s.row + 1};
  const RowRange queries = queries_of(s.entry, s.row);
  const Reference reference = make_reference(small(Op::kBackward, s.entry, s.head, queries, keys));
  const Geometry& g = backward_.geometry;
  const std::string where =
      "[batch " + std::to_string(s.entry) + ", head " + std::to_string(s.head) + ", row " + std::to_string(s.row) + "]";
  const auto check = [&](const std::string& name, const View& view, const Expected& expected) {
    std::vector<std::byte> got(static_cast<size_t>(view.dim) * size_of(c().dtype));
    fetch(view, g.k.entries[s.entry], s.head, keys, got.data());
    return compare_row((name + where).c_str(), expected, 0, c().dtype, got);
  };
  const std::string wrong = check("dk", g.tensor_dk, reference.dk);
  return !wrong.empty() ? wrong : check("dv", g.tensor_dv, reference.dv);
}

}  // namespace cuflash::test
