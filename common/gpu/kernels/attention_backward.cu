// Causal attention, backward. With P the probabilities and S the scores,
//   dV = P^T dY,   dP = dY V^T,   dS = P (dP - delta),
//   dQ = dS K / sqrt(D),   dK = dS^T Q / sqrt(D),
// where delta is the sum of dY Y over each row. P is recomputed, tile by tile, from Q, K and the
// saved logsumexp: that costs a product and saves the T x T matrix.
//
// dK and dV are sums over queries, dQ is a sum over keys. A single kernel for all three would add
// to dQ from several blocks, in arbitrary order. So there are two, and each computes P: one with a
// block per tile of keys that goes through the queries (of all heads that share the keys, in
// order), one with a block per tile of queries that goes through the keys.
#include <cmath>

#include "common/gpu/kernels/attention.h"
#include "common/gpu/kernels/attention_tiles.h"

namespace lab::cuda {
namespace {

struct Arguments {
  AttentionShape shape;
  Matrix dy, q, k, v;
  const float* logsumexp;
  const float* delta;  // as logsumexp
  Matrix dq, dk, dv;
  bool packs;
};

/// With 2, some kernels would not have enough registers.
constexpr int kUnroll = 1;

/// Rows of the tiles that stay, and of those that are loaded in turn. Wide heads get fewer, to fit
/// into the 64 KiB of shared memory that every GPU has.
template <int kHeadDim, int kRows>
struct Tiles {
  static constexpr int kStay = kHeadDim <= 64 ? kRows : 32;
  static constexpr int kPass = kHeadDim <= 64 ? 32 : 16;
  static constexpr int kI = kStay / kTileY;
  static constexpr int kJ = kPass / kTileX;
  static constexpr int kN = HeadColumns<kHeadDim>::kCount;
  static constexpr int kPitch = kHeadDim + kPad;

  static constexpr size_t shared_bytes() {
    return (2 * (kStay + kPass) * kPitch + kStay * (kPass + kPad)) * sizeof(float);
  }
};

/// A block's tiles in shared memory: two that stay, two that are loaded in turn, and the weights.
template <int kHeadDim, int kRows>
struct SharedTiles {
  using Size = Tiles<kHeadDim, kRows>;
  float* stay_a = dynamic_shared<float>();
  float* stay_b = stay_a + Size::kStay * Size::kPitch;
  float* pass_a = stay_b + Size::kStay * Size::kPitch;
  float* pass_b = pass_a + Size::kPass * Size::kPitch;
  float* weights = pass_b + Size::kPass * Size::kPitch;
};

/// A probability from its score before scaling, and from the query's logsumexp times log2(e).
__device__ float probability(float score, float factor, float logsumexp2, bool seen) {
  return seen ? exp2f(score * factor - logsumexp2) : 0.0F;
}

/// Rows of the products are keys, columns are queries. Queries beyond the last one are rows of
/// zeros in their tiles, and their delta is 0: they add nothing.
template <int kHeadDim, int kRows>
__global__ void __launch_bounds__(kTileThreads) attention_dk_dv_kernel(Arguments a) {
  using Size = Tiles<kHeadDim, kRows>;
  const SharedTiles<kHeadDim, kRows> tiles;
  const AttentionShape& s = a.shape;
  const int64_t kv_heads = s.batch * s.kv_heads;
  const int64_t first_key = blockIdx.x / kv_heads * Size::kStay;  // those with most queries first
  const int64_t b = blockIdx.x % kv_heads / s.kv_heads;
  const int64_t kv_head = blockIdx.x % s.kv_heads;
  const int64_t group = s.heads / s.kv_heads;
  const float factor = score_factor(s);

  float dk[Size::kI][Size::kN] = {};
  float dv[Size::kI][Size::kN] = {};
  const auto head = [&](const Matrix& m, int64_t h) {
    return head_of(m, b, h, s.queries, s.head_dim, a.packs);
  };
  load_tile<Size::kStay, kHeadDim>(tiles.stay_a, head(a.k, kv_head), first_key);
  load_tile<Size::kStay, kHeadDim>(tiles.stay_b, head(a.v, kv_head), first_key);

  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const int64_t saved = (b * s.heads + h) * s.queries;  // of logsumexp and delta
    for (int64_t first = first_key; first < s.queries; first += Size::kPass) {
      __syncthreads();
      load_tile<Size::kPass, kHeadDim>(tiles.pass_a, head(a.q, h), first);
      load_tile<Size::kPass, kHeadDim>(tiles.pass_b, head(a.dy, h), first);
      __syncthreads();
      float p[Size::kI][Size::kJ];
      multiply<kHeadDim, kUnroll>(tiles.stay_a, tiles.pass_a, p);
#pragma unroll
      for (int j = 0; j < Size::kJ; ++j) {
        const int64_t query = first + tile_x() + j * kTileX;
        const float logsumexp2 = query < s.queries ? a.logsumexp[saved + query] * kLog2e : 0.0F;
#pragma unroll
        for (int i = 0; i < Size::kI; ++i) {
          const int64_t key = first_key + tile_y() + i * kTileY;
          p[i][j] = probability(p[i][j], factor * kLog2e, logsumexp2, key <= query);
        }
      }
      share_weights(tiles.weights, p);
      accumulate<kHeadDim, Size::kPass>(tiles.weights, tiles.pass_b, dv);

      float ds[Size::kI][Size::kJ];
      multiply<kHeadDim, kUnroll>(tiles.stay_b, tiles.pass_b, ds);
#pragma unroll
      for (int j = 0; j < Size::kJ; ++j) {
        const int64_t query = first + tile_x() + j * kTileX;
        const float delta = query < s.queries ? a.delta[saved + query] : 0.0F;
#pragma unroll
        for (int i = 0; i < Size::kI; ++i) ds[i][j] = p[i][j] * (ds[i][j] - delta);
      }
      share_weights(tiles.weights, ds);
      accumulate<kHeadDim, Size::kPass>(tiles.weights, tiles.pass_a, dk);
    }
  }
#pragma unroll
  for (int i = 0; i < Size::kI; ++i) {
    const int64_t key = first_key + tile_y() + i * kTileY;
    store_row<kHeadDim>(head(a.dk, kv_head), key, dk[i], factor);
    store_row<kHeadDim>(head(a.dv, kv_head), key, dv[i], 1.0F);
  }
}

/// Rows of the products are queries, columns are keys.
template <int kHeadDim, int kRows>
__global__ void __launch_bounds__(kTileThreads) attention_dq_kernel(Arguments a) {
  using Size = Tiles<kHeadDim, kRows>;
  const SharedTiles<kHeadDim, kRows> tiles;
  const AttentionShape& s = a.shape;
  const int64_t heads = s.batch * s.heads;
  const int64_t last_tile = (s.queries - 1) / Size::kStay;
  const int64_t first_query = (last_tile - blockIdx.x / heads) * Size::kStay;  // most keys first
  const int64_t head_index = blockIdx.x % heads;
  const int64_t b = head_index / s.heads;
  const int64_t h = head_index % s.heads;
  const int64_t kv_head = h / (s.heads / s.kv_heads);
  const float factor = score_factor(s);

  const auto head = [&](const Matrix& m, int64_t which) {
    return head_of(m, b, which, s.queries, s.head_dim, a.packs);
  };
  load_tile<Size::kStay, kHeadDim>(tiles.stay_a, head(a.q, h), first_query);
  load_tile<Size::kStay, kHeadDim>(tiles.stay_b, head(a.dy, h), first_query);
  float dq[Size::kI][Size::kN] = {};
  float logsumexp2[Size::kI] = {};
  float delta[Size::kI] = {};
#pragma unroll
  for (int i = 0; i < Size::kI; ++i) {
    const int64_t query = first_query + tile_y() + i * kTileY;
    if (query >= s.queries) continue;
    logsumexp2[i] = a.logsumexp[head_index * s.queries + query] * kLog2e;
    delta[i] = a.delta[head_index * s.queries + query];
  }

  const int64_t all_keys = min(first_query + Size::kStay, s.queries);
  for (int64_t first = 0; first < all_keys; first += Size::kPass) {
    __syncthreads();
    load_tile<Size::kPass, kHeadDim>(tiles.pass_a, head(a.k, kv_head), first);
    load_tile<Size::kPass, kHeadDim>(tiles.pass_b, head(a.v, kv_head), first);
    __syncthreads();
    float p[Size::kI][Size::kJ];
    float ds[Size::kI][Size::kJ];
    multiply<kHeadDim, kUnroll>(tiles.stay_a, tiles.pass_a, p);
    multiply<kHeadDim, kUnroll>(tiles.stay_b, tiles.pass_b, ds);
#pragma unroll
    for (int i = 0; i < Size::kI; ++i) {
      const int64_t query = first_query + tile_y() + i * kTileY;
#pragma unroll
      for (int j = 0; j < Size::kJ; ++j) {
        const int64_t key = first + tile_x() + j * kTileX;
        const bool seen = key <= query;
        ds[i][j] =
            probability(p[i][j], factor * kLog2e, logsumexp2[i], seen) * (ds[i][j] - delta[i]);
      }
    }
    share_weights(tiles.weights, ds);
    accumulate<kHeadDim, Size::kPass>(tiles.weights, tiles.pass_a, dq);
  }
#pragma unroll
  for (int i = 0; i < Size::kI; ++i)
    store_row<kHeadDim>(head(a.dq, h), first_query + tile_y() + i * kTileY, dq[i], factor);
}

/// Starts a kernel with a block for each tile that stays.
template <typename Size>
void start(const Context& context, void (*kernel)(Arguments), int64_t heads, const Arguments& a) {
  launch(kernel, blocks_for(blocks_for(a.shape.queries, Size::kStay) * heads, 1), kTileThreads,
         context.stream(), DynamicShared{Size::shared_bytes()}, a);
}

}  // namespace

void attention_backward(const Context& context, const AttentionShape& shape, const Matrix& dy,
                        const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& y,
                        const float* logsumexp, const Matrix& dq, const Matrix& dk,
                        const Matrix& dv) {
  const int64_t rows = shape.batch * shape.heads * shape.queries;
  if (rows == 0) return;
  const bool packs = packs_fit_all(dy, q, k, v, y, dq, dk, dv) && shape.head_dim % kWidest == 0;
  const Scratch<float> delta(context, static_cast<size_t>(rows));
  const Arguments arguments{shape, dy, q, k, v, logsumexp, delta.data(), dq, dk, dv, packs};
  launch(attention_delta_kernel<float>, row_grid(rows), row_block(), context.stream(), shape, dy, y,
         delta.data());
  const int64_t kv_heads = shape.batch * shape.kv_heads;
  with_block_rows(context, shape.queries, kv_heads, shape.head_dim, [&]<int kHeadDim, int kRows>() {
    start<Tiles<kHeadDim, kRows>>(context, attention_dk_dv_kernel<kHeadDim, kRows>, kv_heads,
                                  arguments);
  });
  const int64_t heads = shape.batch * shape.heads;
  with_block_rows(context, shape.queries, heads, shape.head_dim, [&]<int kHeadDim, int kRows>() {
    start<Tiles<kHeadDim, kRows>>(context, attention_dq_kernel<kHeadDim, kRows>, heads, arguments);
  });
}

}  // namespace lab::cuda
