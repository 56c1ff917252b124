// SPDX-License-Identifier: MIT
// The misuse matrix's rows about tensors: addresses, strides, and outputs that overlap something.
#pragma once

#include "misuse_row.h"

namespace cuflash::test {

// Rows of one tensor; `min_row` and `min_batch` are the strides that a contiguous tensor of the small call has.
template <class Params, class TensorT>
void add_tensor_rows(
    Rows<Params>& rows, const std::string& name, TensorT Params::*member, int64_t min_row, int64_t min_batch
) {
  using Change = std::function<void(TensorT&)>;
  const auto add_row = [&](const std::string& what, const std::string& mention, const Change& change) {
    add(rows, name + "." + what, {name + "." + mention}, [=](Record<Params>& r) { change(r.params.*member); });
  };
  add_row("data null", "data must not be NULL", [](TensorT& t) { t.data = nullptr; });
  rows.back().size_query_accepts = true;
  for (const intptr_t bytes : {1, 2, 3}) {
    add_row("data misaligned by " + std::to_string(bytes), "data (", [=](TensorT& t) {
      t.data = moved(static_cast<char*>(const_cast<void*>(static_cast<const void*>(t.data))), bytes);
    });
  }
  add(rows, name + ".data misaligned by 1, fp16", {name + ".data ("}, [=](Record<Params>& r) {
    r.params.dtype = CUFLASH_R_16F;
    (r.params.*member).data =
        moved(static_cast<char*>(const_cast<void*>(static_cast<const void*>((r.params.*member).data))), 1);
  });
  for (const int64_t stride : {int64_t{-1}, int64_t{-8}, INT64_MIN, int64_t{1} << 61, int64_t{1} << 62, INT64_MAX}) {
    const std::string text = std::to_string(stride);
    add_row("batch_stride = " + text, "batch_stride (" + text + ")", [=](TensorT& t) { t.batch_stride = stride; });
    add_row("row_stride = " + text, "row_stride (" + text + ")", [=](TensorT& t) { t.row_stride = stride; });
    add_row("head_stride = " + text, "head_stride (" + text + ")", [=](TensorT& t) { t.head_stride = stride; });
  }
  if constexpr (std::is_same_v<TensorT, cuflashTensor_t>) {
    for (const int64_t stride : {int64_t{0}, int64_t{1}, int64_t{7}}) {
      const std::string text = std::to_string(stride);
      add_row("head_stride = " + text, "head_stride (" + text + ")", [=](TensorT& t) { t.head_stride = stride; });
    }
    for (const int64_t stride : {int64_t{0}, int64_t{1}, min_row - 1}) {
      const std::string text = std::to_string(stride);
      add_row("row_stride = " + text, "row_stride (" + text + ")", [=](TensorT& t) { t.row_stride = stride; });
    }
    for (const int64_t stride : {int64_t{0}, int64_t{1}, min_batch - 1}) {
      const std::string text = std::to_string(stride);
      add_row("batch_stride = " + text, "batch_stride (" + text + ")", [=](TensorT& t) { t.batch_stride = stride; });
    }
  }
}

template <class Params>
void add_tensors(Rows<Params>& rows) {
  add_tensor_rows(rows, "q", &Params::q, 32, 160);
  add_tensor_rows(rows, "k", &Params::k, 16, 112);
  add_tensor_rows(rows, "v", &Params::v, 16, 112);
  add_tensor_rows(rows, "o", &Params::o, 32, 160);
  if constexpr (kIsBackward<Params>) {
    add_tensor_rows(rows, "dout", &Params::dout, 32, 160);
    add_tensor_rows(rows, "dq", &Params::dq, 32, 160);
    add_tensor_rows(rows, "dk", &Params::dk, 16, 112);
    add_tensor_rows(rows, "dv", &Params::dv, 16, 112);
    add_misaligned(rows, "softmax_lse", &Params::softmax_lse);
    add_misaligned(rows, "dlse", &Params::dlse);
    add(rows, "softmax_lse null", {"softmax_lse must not be NULL"}, [](Record<Params>& r) {
      r.params.softmax_lse = nullptr;
    });
    rows.back().size_query_accepts = true;
  } else {
    for (const intptr_t bytes : {1, 2, 3}) {
      add(rows, "softmax_lse misaligned by " + std::to_string(bytes), {"softmax_lse ("}, [=](Record<Params>& r) {
        r.params.softmax_lse = moved(r.params.softmax_lse, bytes);
      });
    }
  }
}

// Reads and sets the address of a tensor or of row values by name.
template <class Params>
struct Operand {
  const char* name;
  bool is_output;
  std::function<const void*(const Params&)> get;
  std::function<void(Params&, void*)> set;
};

template <class Params, class TensorT>
Operand<Params> tensor_operand(const char* name, TensorT Params::*member) {
  return {
      name,
      std::is_same_v<TensorT, cuflashTensor_t>,
      [=](const Params& p) { return static_cast<const void*>((p.*member).data); },
      [=](Params& p, void* address) { (p.*member).data = address; },
  };
}

template <class Params, class T>
Operand<Params> values_operand(const char* name, T* Params::*member) {
  return {
      name,
      !std::is_const_v<T>,
      [=](const Params& p) { return static_cast<const void*>(p.*member); },
      [=](Params& p, void* address) { p.*member = static_cast<T*>(address); },
  };
}

template <class Params>
std::vector<Operand<Params>> operands() {
  std::vector<Operand<Params>> all = {
      tensor_operand("q", &Params::q),
      tensor_operand("k", &Params::k),
      tensor_operand("v", &Params::v),
      tensor_operand("o", &Params::o),
      values_operand("softmax_lse", &Params::softmax_lse),
  };
  if constexpr (kIsBackward<Params>) {
    all.push_back(tensor_operand("dout", &Params::dout));
    all.push_back(tensor_operand("dq", &Params::dq));
    all.push_back(tensor_operand("dk", &Params::dk));
    all.push_back(tensor_operand("dv", &Params::dv));
  }
  return all;
}

// Every output against everything else: the same address, and an address in the middle of the other one.
template <class Params>
void add_alias_rows(Rows<Params>& rows) {
  const std::vector<Operand<Params>> all = operands<Params>();
  for (const Operand<Params>& output : all) {
    if (!output.is_output) continue;
    for (const Operand<Params>& other : all) {
      if (other.name == output.name) continue;
      for (const intptr_t bytes : {0, 16, 64}) {
        add(rows,
            std::string(output.name) + " = " + other.name + " + " + std::to_string(bytes),
            {std::string(output.name) + " (", " overlaps "},  // it may reach past the other one, into a third
            [=](Record<Params>& r) { output.set(r.params, moved(const_cast<void*>(other.get(r.params)), bytes)); });
      }
    }
  }
}

// Inputs that a small call does without, put into the memory of each output.
template <class Params>
void add_small_alias_rows(Rows<Params>& rows) {
  std::vector<Operand<Params>> small = {
      values_operand("alibi_slopes", &Params::alibi_slopes),
      values_operand("cu_seqlens_q", &Params::cu_seqlens_q),
      values_operand("cu_seqlens_k", &Params::cu_seqlens_k),
      values_operand("seqused_q", &Params::seqused_q),
      values_operand("seqused_k", &Params::seqused_k)};
  if constexpr (kIsBackward<Params>) small.push_back(values_operand("dlse", &Params::dlse));
  for (const Operand<Params>& output : operands<Params>()) {
    if (!output.is_output) continue;
    for (const Operand<Params>& input : small) {
      for (const intptr_t bytes : {0, 16, 64}) {
        add(rows,
            std::string(input.name) + " = " + output.name + " + " + std::to_string(bytes),
            {std::string(output.name) + " (", std::string(" overlaps ") + input.name + " ("},
            [=](Record<Params>& r) {
              input.set(r.params, moved(const_cast<void*>(output.get(r.params)), bytes));
              // cu_seqlens come with the number of rows, here that of the dense call.
              if (r.params.cu_seqlens_q != nullptr) r.params.total_q = int64_t{r.params.batch} * r.params.seqlen_q;
              if (r.params.cu_seqlens_k != nullptr) r.params.total_k = int64_t{r.params.batch} * r.params.seqlen_k;
            });
      }
    }
  }
}

}  // namespace cuflash::test
