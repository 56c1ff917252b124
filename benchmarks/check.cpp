// SPDX-License-Identifier: MIT
#include "check.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "failure.h"

namespace cuflash::bench {
namespace {

// Relative error of a whole tensor that rounding explains, naive's 16-bit scores included, with room.
double tolerance(cuflashDataType_t dtype) {
  switch (dtype) {
    case CUFLASH_R_32F: return 1e-4;
    case CUFLASH_R_16F: return 1e-2;
    default: return 4e-2;
  }
}

// Where element (batch, row, head, 0) of a region is.
struct View {
  const float* data;
  int64_t batch_stride, row_stride, head_stride;

  const float* at(int64_t batch, int64_t row, int64_t head) const {
    return data + batch * batch_stride + row * row_stride + head * head_stride;
  }
};

struct Extent {
  int32_t batch, rows, heads, columns;
};

void compare(
    const std::string& name,
    const Extent& n,
    const View& actual,
    const View& reference,
    double limit,
    CheckResult& result
) {
  double squared_error = 0, squared_reference = 0;
  for (int32_t b = 0; b < n.batch; ++b) {
    for (int32_t row = 0; row < n.rows; ++row) {
      for (int32_t h = 0; h < n.heads; ++h) {
        for (int32_t column = 0; column < n.columns; ++column) {
          const double x = actual.at(b, row, h)[column], y = reference.at(b, row, h)[column];
          if (x == y) {  // equal infinities have no difference
            if (std::isfinite(y)) squared_reference += y * y;
            continue;
          }
          if (!std::isfinite(x) || !std::isfinite(y)) {
            throw Failure(
                "check: " + name + " is " + std::to_string(x) + ", host " + std::to_string(y) + ", at batch " +
                std::to_string(b) + ", row " + std::to_string(row) + ", head " + std::to_string(h) + ", column " +
                std::to_string(column) + " of the part compared"
            );
          }
          result.max_error = std::max(result.max_error, std::abs(x - y));
          squared_error += (x - y) * (x - y);
          squared_reference += y * y;
        }
      }
    }
  }
  const double relative = squared_error == 0 ? 0 : std::sqrt(squared_error / std::max(squared_reference, 1e-30));
  if (relative > limit) {
    throw Failure(
        "check: relative error of " + name + " is " + std::to_string(relative) + ", above " + std::to_string(limit)
    );
  }
  result.relative_error = std::max(result.relative_error, relative);
}

// Unwritten elements hold the poison. -inf is lse's for a row that sees no key.
void require_written(const std::string& name, const std::vector<float>& values) {
  const auto unwritten = std::find_if(values.begin(), values.end(), [](float x) { return std::isnan(x); });
  if (unwritten == values.end()) return;
  throw Failure(
      "check: element " + std::to_string(unwritten - values.begin()) + " of " + name + " is NaN or was not written"
  );
}

// The host's side: the whole inputs as fp32, and calls of the host kernel on regions of them.
class Reference {
 public:
  Reference(const Attention& attention, double limit) : attention_(attention), limit_(limit) {
    const cuflashDataType_t dtype = attention.problem.dtype;
    q_ = attention.q.to_floats(dtype);
    k_ = attention.k.to_floats(dtype);
    v_ = attention.v.to_floats(dtype);
    o_ = attention.o.to_floats(dtype);
    lse_ = attention.lse.to_floats(CUFLASH_R_32F);
  }

  void compare_forward(const Region& region, CheckResult& result) {
    require_written("o", o_);
    require_written("lse", lse_);
    const Case c = region_case(attention_.problem, region);
    cuflashForwardParams_t params = forward_params(whole_fp32(), CUFLASH_DEVICE_HOST, attention_.layout, "host");
    shrink(params, c);
    set_inputs(params, region);
    std::vector<float> o(o_.size());
    std::vector<float> lse(static_cast<size_t>(int64_t{c.batch} * c.num_heads * c.seqlen_q));
    params.o.data = o.data() + first_row(params.o, region);
    params.softmax_lse = lse.data();
    require(cuflashForward(&params, nullptr, 0, nullptr), "cuflashForward on the host");

    const Extent rows{c.batch, c.seqlen_q, c.num_heads, c.head_dim_v};
    compare("o", rows, view(o_, params.o, first_row(params.o, region)), view(params.o), limit_, result);
    const View lse_view{lse.data(), int64_t{c.num_heads} * c.seqlen_q, 1, c.seqlen_q};
    compare("lse", {c.batch, c.seqlen_q, c.num_heads, 1}, lse_of(region), lse_view, limit_, result);
  }

  // dq of the region's rows, and dk and dv of its keys, as far as the region makes them complete.
  void compare_backward(const Region& region, CheckResult& result) {
    load_gradients();
    const Case c = region_case(attention_.problem, region);
    cuflashBackwardParams_t params = backward_params(whole_fp32(), CUFLASH_DEVICE_HOST, attention_.layout, "host");
    shrink(params, c);
    set_inputs(params, region);
    const std::vector<float> lse = region_lse(region, c);
    std::vector<float> dq(dq_.size()), dk(dk_.size()), dv(dv_.size());
    params.o.data = o_.data() + first_row(params.o, region);
    params.dout.data = dout_.data() + first_row(params.dout, region);
    params.softmax_lse = lse.data();
    params.dq.data = dq.data() + first_row(params.dq, region);
    params.dk.data = dk.data() + first_key(params.dk, region);
    params.dv.data = dv.data() + first_key(params.dv, region);
    require(cuflashBackward(&params, nullptr, 0, nullptr), "cuflashBackward on the host");

    if (region.key_begin == 0) {
      const Extent rows{c.batch, c.seqlen_q, c.num_heads, c.head_dim};
      compare("dq", rows, view(dq_, params.dq, first_row(params.dq, region)), view(params.dq), limit_, result);
    }
    if (region.row_begin == 0) {
      const Extent keys{c.batch, c.seqlen_k, c.num_heads_k, c.head_dim};
      const Extent values{c.batch, c.seqlen_k, c.num_heads_k, c.head_dim_v};
      compare("dk", keys, view(dk_, params.dk, first_key(params.dk, region)), view(params.dk), limit_, result);
      compare("dv", values, view(dv_, params.dv, first_key(params.dv, region)), view(params.dv), limit_, result);
    }
  }

 private:
  Case whole_fp32() const {
    Case c = attention_.problem;
    c.dtype = CUFLASH_R_32F;
    return c;
  }

  template <class Params>
  static void shrink(Params& params, const Case& c) {
    params.batch = c.batch;
    params.num_heads = c.num_heads;
    params.num_heads_k = c.num_heads_k;
    params.seqlen_q = c.seqlen_q;
    params.seqlen_k = c.seqlen_k;
  }

  template <class Params>
  void set_inputs(Params& params, const Region& region) const {
    params.q.data = q_.data() + first_row(params.q, region);
    params.k.data = k_.data() + first_key(params.k, region);
    params.v.data = v_.data() + first_key(params.v, region);
  }

  int32_t group() const { return attention_.problem.num_heads / attention_.problem.num_heads_k; }

  template <class Tensor>
  int64_t first_row(const Tensor& t, const Region& r) const {
    return r.batch_begin * t.batch_stride + r.row_begin * t.row_stride + r.head_k_begin * group() * t.head_stride;
  }

  template <class Tensor>
  int64_t first_key(const Tensor& t, const Region& r) const {
    return r.batch_begin * t.batch_stride + r.key_begin * t.row_stride + r.head_k_begin * t.head_stride;
  }

  static View view(const cuflashTensor_t& t) {
    return {static_cast<const float*>(t.data), t.batch_stride, t.row_stride, t.head_stride};
  }

  template <class Tensor>
  static View view(const std::vector<float>& values, const Tensor& t, int64_t first) {
    return {values.data() + first, t.batch_stride, t.row_stride, t.head_stride};
  }

  View lse_of(const Region& region) const {
    const Case& c = attention_.problem;
    const int64_t first_head = int64_t{region.batch_begin} * c.num_heads + region.head_k_begin * group();
    return {lse_.data() + first_head * c.seqlen_q + region.row_begin, int64_t{c.num_heads} * c.seqlen_q, 1, c.seqlen_q};
  }

  // lse has no strides in the ABI: a region's is a copy.
  std::vector<float> region_lse(const Region& region, const Case& c) const {
    const View all = lse_of(region);
    std::vector<float> part;
    for (int32_t b = 0; b < c.batch; ++b) {
      for (int32_t h = 0; h < c.num_heads; ++h) part.insert(part.end(), all.at(b, 0, h), all.at(b, c.seqlen_q, h));
    }
    return part;
  }

  void load_gradients() {
    if (!dq_.empty()) return;
    const cuflashDataType_t dtype = attention_.problem.dtype;
    dout_ = attention_.dout.to_floats(dtype);
    dq_ = attention_.dq.to_floats(dtype);
    dk_ = attention_.dk.to_floats(dtype);
    dv_ = attention_.dv.to_floats(dtype);
    require_written("dq", dq_);
    require_written("dk", dk_);
    require_written("dv", dv_);
  }

  const Attention& attention_;
  double limit_;
  std::vector<float> q_, k_, v_, o_, lse_;
  std::vector<float> dout_, dq_, dk_, dv_;
};

bool is_all(const Case& c, const Region& r) { return region_case(c, r) == c; }

std::string rows_text(const Case& c, const Region& r) { return std::to_string(c.seqlen_q - r.row_begin) + " rows"; }

std::string keys_text(const Case& c, const Region& r) { return std::to_string(c.seqlen_k - r.key_begin) + " keys"; }

}  // namespace

Case region_case(const Case& c, const Region& region) {
  Case part = c;
  part.batch = region.batch;
  part.num_heads_k = region.heads_k;
  part.num_heads = region.heads_k * (c.num_heads / c.num_heads_k);
  part.seqlen_q = c.seqlen_q - region.row_begin;
  part.seqlen_k = c.seqlen_k - region.key_begin;
  return part;
}

Region choose_region(const Case& c, Cut cut, double max_flops) {
  Region region{0, c.batch, 0, c.num_heads_k, 0, 0};
  if (flops(c) <= max_flops) return region;
  region = {c.batch - 1, 1, c.num_heads_k - 1, 1, 0, 0};
  int32_t& begin = cut == Cut::kRows ? region.row_begin : region.key_begin;
  const int32_t length = cut == Cut::kRows ? c.seqlen_q : c.seqlen_k;
  while (length - begin > 1 && flops(region_case(c, region)) > max_flops) begin = length - (length - begin) / 2;
  return region;
}

CheckResult check_outputs(const Attention& attention, double max_flops) {
  const Case& c = attention.problem;
  CheckResult result;
  Reference reference(attention, tolerance(c.dtype));
  const Region rows = choose_region(c, Cut::kRows, max_flops);
  result.scope = "all";
  if (c.operation == CUFLASH_OP_FORWARD) {
    reference.compare_forward(rows, result);
    if (!is_all(c, rows)) result.scope = "one head, " + rows_text(c, rows);
    return result;
  }
  reference.compare_backward(rows, result);
  if (rows.row_begin == 0 && rows.key_begin == 0) {
    if (!is_all(c, rows)) result.scope = "one head";
    return result;
  }
  const Region keys = choose_region(c, Cut::kKeys, max_flops);
  reference.compare_backward(keys, result);
  result.scope = "one head, " + rows_text(c, rows) + " of dq, " + keys_text(c, keys) + " of dk and dv";
  return result;
}

}  // namespace cuflash::bench
