// SPDX-License-Identifier: MIT
// A C++17 caller: one query row over three keys of equal scores gives the mean of the values.
#include <cuflash/cuflash.h>

#include <cmath>
#include <cstdio>
#include <cstring>

int main() {
  if (cuflashGetVersion() != CUFLASH_VERSION || std::strstr(cuflashGetBuildInfo(), "host") == nullptr) {
    std::printf("wrong library: %s\n", cuflashGetBuildInfo());
    return 1;
  }
  const float q[2] = {1, 2}, k[6] = {3, 4, 3, 4, 3, 4}, v[6] = {1, 10, 2, 20, 6, 60};
  float o[2] = {}, lse = 0;
  cuflashForwardParams_t p{};
  p.struct_size = sizeof(p);
  p.dtype = CUFLASH_R_32F;
  p.device = CUFLASH_DEVICE_HOST;
  p.batch = p.num_heads = p.num_heads_k = p.seqlen_q = 1;
  p.seqlen_k = 3;
  p.head_dim = 2;
  p.softmax_scale = 1;
  p.q.data = q;
  p.k = {k, 0, 2, 0};
  p.v = {v, 0, 2, 0};
  p.o.data = o;
  p.softmax_lse = &lse;
  if (cuflashForward(&p, nullptr, 0, nullptr) != CUFLASH_STATUS_SUCCESS) {
    std::printf("%s\n", cuflashGetLastErrorMessage());
    return 1;
  }
  const bool right =
      std::fabs(o[0] - 3) < 1e-5f && std::fabs(o[1] - 30) < 1e-4f && std::fabs(lse - (11 + std::log(3.0f))) < 1e-5f;
  std::printf("o = %g %g, lse = %g: %s\n", o[0], o[1], lse, right ? "right" : "wrong");
  return right ? 0 : 1;
}
