// SPDX-License-Identifier: MIT
#include "scenario.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "distribution.h"
#include "random.h"

namespace cuflash::test {
namespace {

// Around outputs: a pattern that no poison has, so that a stray write of poison shows too.
constexpr int kOutputRedZone = 0xA5;
// Around and in the gaps of inputs: NaN in every dtype, so that a stray read shows in the result.
constexpr int kInputRedZone = 0xFF;

bool is_output(const Case& c, Buffer buffer) {
  switch (buffer) {
    case Buffer::kO:
    case Buffer::kLse: return c.op == Op::kForward;
    case Buffer::kDq:
    case Buffer::kDk:
    case Buffer::kDv: return true;
    default: return false;
  }
}

class Filler {
 public:
  explicit Filler(Scenario* scenario) : s_(*scenario), c_(scenario->c), values_(c_, scenario->scale()) {}

  void fill_all() {
    const Geometry& g = s_.geometry;
    fill_rows(g.tensor_q, g.q, 1, [&](Random& r, const Place& at) { return values_.query(r, at); });
    fill_rows(g.tensor_k, g.k, 2, [&](Random& r, const Place& at) { return values_.key(r, at); });
    fill_rows(g.tensor_v, g.k, 3, [&](Random& r, const Place& at) { return values_.value(r, at); });
    if (c_.op == Op::kBackward) {
      fill_rows(g.tensor_dout, g.q, 4, [&](Random& r, const Place&) { return values_.dout(r); });
    }
    if (float* dlse = s_.floats(Buffer::kDlse)) fill_dlse(dlse);
    if (float* slopes = s_.floats(Buffer::kAlibi)) fill_slopes(slopes);
    copy(Buffer::kCuSeqlensQ, g.q.cu_seqlens);
    copy(Buffer::kCuSeqlensK, g.k.cu_seqlens);
    copy(Buffer::kUsedQ, g.q.seqused);
    copy(Buffer::kUsedK, g.k.seqused);
  }

 private:
  template <class Value>
  void fill_rows(const View& view, const Side& side, uint64_t stream, Value value) {
    for (size_t entry = 0; entry < side.entries.size(); ++entry) {
      const Rows& rows = side.entries[entry];
      for (int32_t row = 0; row < rows.length; ++row) {
        for (int32_t head = 0; head < view.heads; ++head) {
          // A stream per row: an entry's values do not depend on the other entries' lengths.
          Random random(
              c_.data_seed,
              ((stream * 0x10000 + entry) * 0x10000 + static_cast<uint64_t>(row)) * 0x10000 +
                  static_cast<uint64_t>(head)
          );
          std::byte* data = s_.data(view, rows.batch, rows.first + row, head);
          for (int32_t e = 0; e < view.dim; ++e) {
            store(c_.dtype, data + static_cast<size_t>(e) * size_of(c_.dtype), value(random, {row, rows.length, e}));
          }
        }
      }
    }
  }

  void fill_dlse(float* dlse) {
    Random random(c_.data_seed, 5);
    for (int32_t entry = 0; entry < c_.batch; ++entry) {
      for (int32_t head = 0; head < c_.heads; ++head) {
        const int32_t length = s_.geometry.q.entries[static_cast<size_t>(entry)].length;
        for (int32_t row = 0; row < length; ++row)
          dlse[lse_index(c_, s_.geometry.q, entry, head, row)] = random.normal();
      }
    }
  }

  // 2^(-8 (h + 1) / heads), the slopes of the ALiBi paper, another multiple of them for each entry.
  void fill_slopes(float* slopes) {
    const int32_t entries = c_.alibi == Alibi::kPerEntry ? c_.batch : 1;
    for (int32_t entry = 0; entry < entries; ++entry) {
      for (int32_t head = 0; head < c_.heads; ++head) {
        const float slope = std::exp2(-8.0f * static_cast<float>(head + 1) / static_cast<float>(c_.heads));
        slopes[entry * c_.heads + head] = slope * static_cast<float>(1 + entry);
      }
    }
  }

  void copy(Buffer buffer, const std::vector<int32_t>& values) {
    if (values.empty()) return;
    std::memcpy(s_.image.data() + s_.geometry.segment(buffer).offset, values.data(), values.size() * sizeof(int32_t));
  }

  Scenario& s_;
  const Case& c_;
  Values values_;
};

template <class T>
T* address(const Addresses& addresses, Buffer buffer) {
  return reinterpret_cast<T*>(addresses[static_cast<size_t>(buffer)]);
}

template <class TensorT>
TensorT tensor(const Scenario& scenario, const Addresses& addresses, const View& view) {
  std::byte* data = addresses[static_cast<size_t>(view.buffer)];
  if (data != nullptr) data += static_cast<size_t>(view.base) * size_of(scenario.c.dtype);
  return {data, view.batch_stride, view.row_stride, view.head_stride};
}

template <class Params>
void fill_common(const Scenario& scenario, const Addresses& addresses, cuflashDevice_t device, Params* p) {
  const Case& c = scenario.c;
  const Geometry& g = scenario.geometry;
  p->dtype = static_cast<cuflashDataType_t>(c.dtype);
  p->device = device;
  p->batch = c.batch;
  p->num_heads = c.heads;
  p->num_heads_k = c.heads_k;
  p->seqlen_q = c.seqlen_q;
  p->seqlen_k = c.seqlen_k;
  p->head_dim = c.head_dim;
  p->head_dim_v = c.head_dim_v;
  p->mask = static_cast<cuflashMask_t>(c.mask);
  p->alignment = static_cast<cuflashAlignment_t>(c.align);
  p->window_left = c.window_left;
  p->window_right = c.window_right;
  p->softmax_scale = c.scale;
  p->softcap = c.softcap;
  p->total_q = g.q.total;
  p->total_k = g.k.total;
  p->cu_seqlens_q = address<int32_t>(addresses, Buffer::kCuSeqlensQ);
  p->cu_seqlens_k = address<int32_t>(addresses, Buffer::kCuSeqlensK);
  p->seqused_q = address<int32_t>(addresses, Buffer::kUsedQ);
  p->seqused_k = address<int32_t>(addresses, Buffer::kUsedK);
  p->alibi_slopes = address<float>(addresses, Buffer::kAlibi);
  p->alibi_batch_stride = c.alibi == Alibi::kPerEntry ? c.heads : 0;
  p->q = tensor<cuflashConstTensor_t>(scenario, addresses, g.tensor_q);
  p->k = tensor<cuflashConstTensor_t>(scenario, addresses, g.tensor_k);
  p->v = tensor<cuflashConstTensor_t>(scenario, addresses, g.tensor_v);
}

}  // namespace

float Scenario::scale() const {
  return c.scale != 0.0f ? c.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
}

Poison Scenario::poison() const {
  constexpr Poison kChoices[] = {Poison::kNan, Poison::kHuge, Poison::kZero};
  return kChoices[c.geometry_seed % 3];
}

const std::byte* Scenario::data(const View& view, int64_t batch, int64_t row, int32_t head) const {
  const auto element = static_cast<size_t>(view.offset(batch, row, head));
  return image.data() + geometry.segment(view.buffer).offset + element * size_of(c.dtype);
}

std::byte* Scenario::data(const View& view, int64_t batch, int64_t row, int32_t head) {
  return const_cast<std::byte*>(std::as_const(*this).data(view, batch, row, head));
}

const float* Scenario::floats(Buffer buffer) const {
  const Segment& segment = geometry.segment(buffer);
  return segment.bytes == 0 ? nullptr : reinterpret_cast<const float*>(image.data() + segment.offset);
}

float* Scenario::floats(Buffer buffer) { return const_cast<float*>(std::as_const(*this).floats(buffer)); }

float Scenario::slope(int32_t entry, int32_t head) const {
  switch (c.alibi) {
    case Alibi::kPerHead: return floats(Buffer::kAlibi)[head];
    case Alibi::kPerEntry: return floats(Buffer::kAlibi)[entry * c.heads + head];
    default: return 0.0f;
  }
}

Scenario make_scenario(const Case& c) {
  Scenario scenario{c, make_geometry(c), {}};
  scenario.image.resize(scenario.geometry.image_bytes, static_cast<std::byte>(kInputRedZone));
  for (size_t i = 0; i < kNumBuffers; ++i) {
    const Segment& segment = scenario.geometry.segments[i];
    if (segment.bytes == 0) continue;
    std::byte* data = scenario.image.data() + segment.offset;
    if (is_output(c, static_cast<Buffer>(i))) {
      std::memset(data - kRedZoneBytes, kOutputRedZone, segment.bytes + 2 * kRedZoneBytes);
      std::memset(data, static_cast<int>(scenario.poison()), segment.bytes);
    } else {
      std::memset(data, kInputRedZone, segment.bytes);
    }
  }
  Filler(&scenario).fill_all();
  return scenario;
}

Addresses addresses_in(const Geometry& geometry, std::byte* image) {
  Addresses addresses{};
  for (size_t i = 0; i < kNumBuffers; ++i) {
    if (geometry.segments[i].bytes != 0) addresses[i] = image + geometry.segments[i].offset;
  }
  return addresses;
}

cuflashForwardParams_t forward_params(const Scenario& scenario, const Addresses& addresses, cuflashDevice_t device) {
  cuflashForwardParams_t p;
  cuflashForwardParamsInit(&p, sizeof(p));
  fill_common(scenario, addresses, device, &p);
  p.o = tensor<cuflashTensor_t>(scenario, addresses, scenario.geometry.tensor_o);
  p.softmax_lse = address<float>(addresses, Buffer::kLse);
  return p;
}

cuflashBackwardParams_t backward_params(const Scenario& scenario, const Addresses& addresses, cuflashDevice_t device) {
  cuflashBackwardParams_t p;
  cuflashBackwardParamsInit(&p, sizeof(p));
  fill_common(scenario, addresses, device, &p);
  const Geometry& g = scenario.geometry;
  p.deterministic = scenario.c.deterministic ? 1 : 0;
  p.o = tensor<cuflashConstTensor_t>(scenario, addresses, g.tensor_o);
  p.dout = tensor<cuflashConstTensor_t>(scenario, addresses, g.tensor_dout);
  p.softmax_lse = address<float>(addresses, Buffer::kLse);
  p.dlse = address<float>(addresses, Buffer::kDlse);
  p.dq = tensor<cuflashTensor_t>(scenario, addresses, g.tensor_dq);
  p.dk = tensor<cuflashTensor_t>(scenario, addresses, g.tensor_dk);
  p.dv = tensor<cuflashTensor_t>(scenario, addresses, g.tensor_dv);
  return p;
}

}  // namespace cuflash::test
