// SPDX-License-Identifier: MIT
#include "cases.h"

#include <algorithm>

#include "random.h"

namespace cuflash::test {
namespace {

constexpr int32_t kHeadDims[] = {1,  3,  8,   16,  17,  32,  33,  40,  64,  67,  72,
                                 80, 96, 104, 112, 120, 128, 129, 160, 192, 255, 256};

struct LengthPair {
  int32_t q;
  int32_t k;
};

// Around the tile sizes of kernels (32, 64, 128), far from them, and unequal in both directions.
constexpr LengthPair kLengths[] = {{1, 1},     {2, 2},     {31, 31},   {32, 32},   {33, 33},    {1, 97},
                                   {97, 1},    {97, 97},   {64, 64},   {63, 63},   {65, 65},    {63, 65},
                                   {113, 203}, {203, 113}, {127, 128}, {128, 127}, {129, 129},  {799, 3},
                                   {3, 799},   {193, 193}, {239, 1},   {257, 257}, {1023, 1024}};

struct MaskChoice {
  Mask mask;
  Align align;
  int32_t left;
  int32_t right;
};

constexpr MaskChoice kMasks[] = {
    {Mask::kNone, Align::kBottomRight, 0, 0},
    {Mask::kCausal, Align::kBottomRight, 0, 0},
    {Mask::kCausal, Align::kTopLeft, 0, 0},
    {Mask::kWindow, Align::kBottomRight, 17, 5},
    {Mask::kWindow, Align::kTopLeft, -1, 40},
    {Mask::kWindow, Align::kBottomRight, 64, -1}};
constexpr int32_t kLengthsPerMask = 6;

struct HeadsChoice {
  int32_t heads;
  int32_t heads_k;
};

constexpr HeadsChoice kHeads[] = {{2, 2}, {4, 2}, {3, 1}};  // MHA, GQA, MQA

constexpr Layout kLayouts[] = {Layout::kBshd, Layout::kBhsd, Layout::kPacked, Layout::kPadded};

template <class T, size_t kSize>
const T& in_turn(const T (&choices)[kSize], int64_t turn) {
  return choices[static_cast<size_t>(turn) % kSize];
}

void set_mask(const MaskChoice& choice, Case* c) {
  c->mask = choice.mask;
  c->align = choice.align;
  c->window_left = choice.left;
  c->window_right = choice.right;
}

int64_t products(const Case& c) { return int64_t{c.batch} * c.heads * c.seqlen_q * c.seqlen_k * c.head_dim; }

// Lengths small, medium, or around a multiple of a tile.
int32_t random_seqlen(Random& random) {
  const int64_t kind = random.below(100);
  if (kind < 3) return 0;
  if (kind < 40) return random.between(1, 40);
  if (kind < 70) return random.between(41, 200);
  constexpr int32_t kTiles[] = {32, 64, 96, 128, 192, 256, 384};
  return random.pick(kTiles) + random.between(-1, 1);
}

int32_t random_window(Random& random, int32_t seqlen) {
  if (random.chance(25)) return -1;
  return random.chance(30) ? 0 : random.between(0, seqlen + 2);
}

void draw_mask(Random& random, Case* c) {
  constexpr Mask kChoices[] = {Mask::kNone, Mask::kCausal, Mask::kWindow};
  c->mask = random.pick(kChoices);
  c->align = random.chance(30) ? Align::kTopLeft : Align::kBottomRight;
  if (c->mask != Mask::kWindow) return;
  c->window_left = random_window(random, c->seqlen_k);
  c->window_right = random_window(random, c->seqlen_k);
}

void draw_scores(Random& random, Case* c) {
  constexpr float kScales[] = {0.0f, 0.0f, 0.0f, 0.125f, 0.3f, -0.2f, 1.0f};
  constexpr float kSoftcaps[] = {0.5f, 5.0f, 30.0f};
  constexpr Alibi kAlibis[] = {Alibi::kPerHead, Alibi::kPerEntry};
  c->scale = random.pick(kScales);
  if (random.chance(20)) c->softcap = random.pick(kSoftcaps);
  if (random.chance(20)) c->alibi = random.pick(kAlibis);
}

void draw_memory(Random& random, Case* c) {
  constexpr Layout kChoices[] = {
      Layout::kBshd,
      Layout::kBshd,
      Layout::kBhsd,
      Layout::kPacked,
      Layout::kPadded,
      Layout::kBroadcast,
      Layout::kUnaligned};
  c->layout = random.pick(kChoices);
  c->packed_q = random.chance(25);
  c->packed_k = random.chance(c->packed_q ? 70 : 10);
  c->used_q = random.chance(12);
  c->used_k = random.chance(12);
}

void draw_data(Random& random, Case* c) {
  constexpr Distribution kRare[] = {
      Distribution::kHuge,
      Distribution::kLowLse,
      Distribution::kOneHuge,
      Distribution::kLastHuge,
      Distribution::kRising,
      Distribution::kAlternating,
      Distribution::kTies,
      Distribution::kEqual,
      Distribution::kEqualHuge,
      Distribution::kBalanced,
      Distribution::kDenormal,
      Distribution::kZero,
      Distribution::kPositive,
      Distribution::kCancelling};
  if (random.chance(20)) c->distribution = random.pick(kRare);
  c->geometry_seed = static_cast<uint32_t>(random.below(1 << 20));
  c->data_seed = static_cast<uint32_t>(random.below(1 << 20));
}

}  // namespace

std::vector<Case> grid_cases(Op op, DType dtype, int32_t rounds) {
  std::vector<Case> cases;
  int64_t turn = 0;
  for (int32_t round = 0; round < rounds; ++round) {
    for (const int32_t head_dim : kHeadDims) {
      for (const MaskChoice& mask : kMasks) {
        for (int32_t i = 0; i < kLengthsPerMask; ++i, ++turn) {
          // The number of pairs, 23, is prime: head dims, 36 turns each, start at different pairs.
          const LengthPair& lengths = in_turn(kLengths, turn);
          const HeadsChoice& heads = in_turn(kHeads, turn + turn / 7 + round);
          Case c;
          c.op = op;
          c.dtype = dtype;
          c.batch = lengths.q * lengths.k > 100'000 ? 1 : 2;
          c.heads = heads.heads;
          c.heads_k = heads.heads_k;
          c.seqlen_q = lengths.q;
          c.seqlen_k = lengths.k;
          c.head_dim = head_dim;
          c.layout = in_turn(kLayouts, turn / 5);
          c.deterministic = op == Op::kBackward && turn % 2 == 1;
          c.geometry_seed = static_cast<uint32_t>(turn);
          c.data_seed = static_cast<uint32_t>(turn);
          set_mask(mask, &c);
          cases.push_back(c);
        }
      }
    }
    ++turn;
  }
  return cases;
}

std::vector<Case> every_nth(const std::vector<Case>& cases, int32_t n) {
  std::vector<Case> chosen;
  for (size_t i = 0; i < cases.size(); i += static_cast<size_t>(n)) chosen.push_back(cases[i]);
  return chosen;
}

Case random_case(uint64_t seed) {
  constexpr int64_t kMostProducts = int64_t{1} << 24;
  constexpr HeadsChoice kChoices[] = {{1, 1}, {2, 2}, {3, 3}, {4, 2}, {4, 1}, {6, 2}, {8, 8}};
  Random random(seed, 77);
  Case c;
  do {
    c = Case();
    c.op = random.chance(50) ? Op::kBackward : Op::kForward;
    c.dtype = random.pick(kAllDTypes);
    c.batch = random.between(1, 4);
    const HeadsChoice heads = random.pick(kChoices);
    c.heads = heads.heads;
    c.heads_k = heads.heads_k;
    c.seqlen_q = random_seqlen(random);
    c.seqlen_k = random.chance(50) ? c.seqlen_q : random_seqlen(random);
    c.head_dim = random.chance(60) ? random.pick(kHeadDims) : random.between(1, 256);
    if (random.chance(25)) c.head_dim_v = random.chance(50) ? random.pick(kHeadDims) : random.between(1, 256);
    draw_mask(random, &c);
    draw_scores(random, &c);
    draw_memory(random, &c);
    c.lse = c.op == Op::kBackward || random.chance(75);
    c.dlse = c.op == Op::kBackward && random.chance(30);
    c.deterministic = c.op == Op::kBackward && random.chance(50);
    draw_data(random, &c);
  } while (products(c) > kMostProducts);
  return c;
}

}  // namespace cuflash::test
