// SPDX-License-Identifier: MIT
// From a plan to the kernel instance of a room that has one for each 16-bit dtype and capacity.
#pragma once

#include "kernels/common/select_type.h"
#include "kernels/common/tile_table.h"

namespace cuflash {

// Calls f.operator()<T, kHeadDim>() for a validated dtype and the capacity of kTable that the plan names.
template <const auto& kTable, class F>
Status with_16bit_instance(cuflashDataType_t dtype, const Plan& plan, F&& f) {
  return with_16bit_dtype(dtype, [&]<class T>(TypeTag<T>) {
    return with_head_dim<kTable>(plan.head_dim, [&]<int kHeadDim>() { return f.template operator()<T, kHeadDim>(); });
  });
}

}  // namespace cuflash
