// SPDX-License-Identifier: MIT
// The host room's threads: every tile is handed out once, and results do not depend on how many threads there are.
#include "kernels/host/workers.h"

#include <gtest/gtest.h>

#include <array>
#include <climits>
#include <mutex>
#include <tuple>
#include <vector>

#include "kernels/host/kernels.h"
#include "support/random.h"

namespace cuflash::test {
namespace {

constexpr int32_t kWorkerCounts[] = {1, 2, 3, 16};

// Packed, lengths 70, 0 and 33; grouped heads; a window.
constexpr std::array<int32_t, 4> kCuSeqlens = {0, 70, 70, 103};

Attention packed_attention() {
  Attention a{};
  a.batch = 3;
  a.num_heads = 4;
  a.num_heads_k = 2;
  a.seqlen_q = a.seqlen_k = INT32_MAX;  // an upper bound, and no more than that
  a.head_dim = 5;
  a.head_dim_v = 7;
  a.bottom_right = 1;
  a.window_left = 40;
  a.window_right = 2;
  a.scale = 0.5f;
  a.total_q = a.total_k = kCuSeqlens.back();
  a.cu_seqlens_q = a.cu_seqlens_k = kCuSeqlens.data();
  return a;
}

using TileId = std::tuple<int32_t, int32_t, int32_t, int32_t>;  // entry, head, first row, end row

template <host::Side kSide>
std::vector<TileId> tiles_seen(const Attention& a, int32_t workers) {
  host::TileQueue<kSide> queue(a, 32);
  std::mutex mutex;
  std::vector<TileId> seen;
  host::run_workers(workers, [&] {
    queue.drain([&](const host::Tile& tile) {
      const std::lock_guard<std::mutex> lock(mutex);
      seen.emplace_back(tile.entry, tile.head, tile.rows.begin, tile.rows.end);
    });
  });
  std::sort(seen.begin(), seen.end());
  return seen;
}

std::vector<TileId> tiles_expected(int32_t num_heads) {
  std::vector<TileId> tiles;
  for (int32_t head = 0; head < num_heads; ++head) {
    tiles.insert(
        tiles.end(), {{0, head, 0, 32}, {0, head, 32, 64}, {0, head, 64, 70}, {2, head, 0, 32}, {2, head, 32, 33}}
    );
  }
  std::sort(tiles.begin(), tiles.end());
  return tiles;
}

TEST(Workers, EachTileOnce) {
  const Attention a = packed_attention();
  for (const int32_t workers : kWorkerCounts) {
    EXPECT_EQ(tiles_seen<host::Side::kQuery>(a, workers), tiles_expected(a.num_heads)) << workers;
    EXPECT_EQ(tiles_seen<host::Side::kKey>(a, workers), tiles_expected(a.num_heads_k)) << workers;
  }
}

TEST(Workers, NoTiles) {
  Attention a = packed_attention();
  a.num_heads = a.num_heads_k = 0;
  EXPECT_TRUE(tiles_seen<host::Side::kQuery>(a, 2).empty());
  a = packed_attention();
  a.batch = 0;
  EXPECT_TRUE(tiles_seen<host::Side::kKey>(a, 2).empty());
}

TEST(Workers, SmallCallsStayOnTheirThread) {
  Attention a = packed_attention();
  EXPECT_EQ(host::num_workers(a), 1);
  a.cu_seqlens_q = a.cu_seqlens_k = nullptr;  // 2^31 rows on either side
  EXPECT_EQ(host::num_workers(a), static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency())));
}

TEST(Workers, OnlyPairsThatTheMaskLeavesAreWork) {
  const auto all = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  Attention a = packed_attention();
  a.batch = 1;
  a.num_heads = a.num_heads_k = 1;
  a.head_dim = a.head_dim_v = 64;
  a.cu_seqlens_q = a.cu_seqlens_k = nullptr;
  a.seqlen_q = a.seqlen_k = 8192;  // 2^26 pairs of 2^7 multiply-adds
  a.window_left = a.window_right = kUnlimited;
  EXPECT_EQ(host::num_workers(a), all);
  a.window_left = a.window_right = 0;  // 2^13 pairs: as much as one thread is started for
  EXPECT_EQ(host::num_workers(a), 1);
  a.window_left = kUnlimited;  // causal
  EXPECT_EQ(host::num_workers(a), all);
}

// Contiguous tensors for packed_attention(), filled at random.
struct Tensors {
  static constexpr size_t kRows = kCuSeqlens.back();

  std::vector<float> q = random(1, 4 * 5), k = random(2, 2 * 5), v = random(3, 2 * 7), dout = random(4, 4 * 7);
  std::vector<float> dlse = random(5, 4);
  std::vector<float> o = std::vector<float>(kRows * 4 * 7), lse = std::vector<float>(kRows * 4);
  std::vector<float> dq = std::vector<float>(q.size()), dk = std::vector<float>(k.size()),
                     dv = std::vector<float>(v.size());

  static std::vector<float> random(uint64_t stream, size_t row_size) {
    Random generator(7, stream);
    std::vector<float> values(kRows * row_size);
    for (float& value : values) value = generator.normal();
    return values;
  }

  void run(int32_t workers) {
    const Attention a = packed_attention();
    const ConstTensor q_in{q.data(), 0, 20, 5}, k_in{k.data(), 0, 10, 5}, v_in{v.data(), 0, 14, 7};
    const FwdArgs forward = {a, q_in, k_in, v_in, {o.data(), 0, 28, 7}, lse.data()};
    EXPECT_TRUE(host::forward<float>(forward, workers).ok());
    const BwdArgs backward = {
        a,
        q_in,
        k_in,
        v_in,
        {o.data(), 0, 28, 7},
        {dout.data(), 0, 28, 7},
        lse.data(),
        dlse.data(),
        {dq.data(), 0, 20, 5},
        {dk.data(), 0, 10, 5},
        {dv.data(), 0, 14, 7},
        false};
    EXPECT_TRUE(host::backward<float>(backward, workers).ok());
  }
};

TEST(Workers, SameBitsForAnyNumber) {
  Tensors one;
  one.run(1);
  for (const int32_t workers : kWorkerCounts) {
    for (int repeat = 0; repeat < 10; ++repeat) {
      Tensors many;
      many.run(workers);
      ASSERT_EQ(many.o, one.o) << workers;
      ASSERT_EQ(many.lse, one.lse) << workers;
      ASSERT_EQ(many.dq, one.dq) << workers;
      ASSERT_EQ(many.dk, one.dk) << workers;
      ASSERT_EQ(many.dv, one.dv) << workers;
    }
  }
}

}  // namespace
}  // namespace cuflash::test
