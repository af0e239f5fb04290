// Causal attention, forward, without the matrix of all scores (Dao et al., 2022).
//
// One block per 64 queries of a head, or per 32 where there would be too few blocks. It goes
// through the keys, 32 at a time, and keeps for each query the largest score so far (m), the sum of
// e^(score - m) (l) and the sum of e^(score - m) v (out). When a tile brings a larger score, m
// grows and l and out are scaled down to match: the "online softmax" (Milakov and Gimelshein,
// 2018). At the end y = out / l, and logsumexp = m + ln l is all that the backward pass needs to
// compute any probability again. Keys after the block's last query are never read. Blocks with the
// most keys start first.
//
// Scores are kept times log2(e) / sqrt(D), so that exponentials are powers of two.
#include <cmath>

#include "common/gpu/kernels/attention.h"
#include "common/gpu/kernels/attention_tiles.h"

namespace lab::cuda {
namespace {

constexpr int kKeys = 32;
constexpr int kJ = kKeys / kTileX;

struct Arguments {
  AttentionShape shape;
  Matrix q, k, v, y;
  float* logsumexp;
  bool packs;
};

template <int kHeadDim, int kQueries>
constexpr size_t shared_bytes() {
  return ((kQueries + kKeys) * (kHeadDim + kPad) + kQueries * (kKeys + kPad)) * sizeof(float);
}

/// Largest (or sum) over the 8 threads that share a row.
__device__ float row_max(float value) {
#pragma unroll
  for (int distance = kTileX / 2; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}
__device__ float row_sum(float value) {
#pragma unroll
  for (int distance = kTileX / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

/// Scales the scores; those of keys that a query must not see become minus infinity. `visible`: how
/// many keys from the tile's first on the thread's first row sees.
template <int kI>
__device__ void scale_and_mask(float (&scores)[kI][kJ], float factor, int64_t visible) {
  const bool all_visible = visible - tile_y() >= kKeys;  // in the block's first row, so in all
#pragma unroll
  for (int i = 0; i < kI; ++i)
#pragma unroll
    for (int j = 0; j < kJ; ++j) {
      const bool seen = all_visible || tile_x() + j * kTileX < visible + i * kTileY;
      scores[i][j] = seen ? scores[i][j] * factor : -INFINITY;
    }
}

/// Scores become e^(score - m); m, l and out are brought up to date.
template <int kI, int kN>
__device__ void soften(float (&scores)[kI][kJ], float (&m)[kI], float (&l)[kI],
                       float (&out)[kI][kN]) {
#pragma unroll
  for (int i = 0; i < kI; ++i) {
    float largest = m[i];
#pragma unroll
    for (int j = 0; j < kJ; ++j) largest = fmaxf(largest, scores[i][j]);
    largest = row_max(largest);
    const float shrink = exp2f(m[i] - largest);
    m[i] = largest;
    l[i] *= shrink;
#pragma unroll
    for (int n = 0; n < kN; ++n) out[i][n] *= shrink;
#pragma unroll
    for (int j = 0; j < kJ; ++j) {
      scores[i][j] = exp2f(scores[i][j] - largest);
      l[i] +=
          scores[i][j];  // of this thread's keys only; the row's threads are added up at the end
    }
  }
}

template <int kHeadDim, int kQueries>
__global__ void __launch_bounds__(kTileThreads) attention_forward_kernel(Arguments a) {
  constexpr int kI = kQueries / kTileY;
  float* q_tile = dynamic_shared<float>();
  float* kv_tile = q_tile + kQueries * (kHeadDim + kPad);  // keys, then values
  float* weights = kv_tile + kKeys * (kHeadDim + kPad);

  const AttentionShape& s = a.shape;
  const int64_t head_index = blockIdx.x % (s.batch * s.heads);
  const int64_t blocks_before = blockIdx.x / (s.batch * s.heads);
  const int64_t first_query = ((s.queries - 1) / kQueries - blocks_before) * kQueries;
  const int64_t b = head_index / s.heads;
  const int64_t h = head_index % s.heads;
  const int64_t kv_head = h / (s.heads / s.kv_heads);
  const HeadOf<float> q = head_of(a.q, b, h, s.queries, s.head_dim, a.packs);
  const HeadOf<float> k = head_of(a.k, b, kv_head, s.keys, s.head_dim, a.packs);
  const HeadOf<float> v = head_of(a.v, b, kv_head, s.keys, s.head_dim, a.packs);
  const HeadOf<float> y = head_of(a.y, b, h, s.queries, s.head_dim, a.packs);

  const int64_t visible = s.keys - s.queries + first_query + 1;  // keys that the first query sees
  const int64_t all_keys = min(visible + kQueries - 1, s.keys);
  const float factor = kLog2e / sqrtf(static_cast<float>(s.head_dim));

  float out[kI][HeadColumns<kHeadDim>::kCount] = {};
  float l[kI] = {};
  float m[kI];
#pragma unroll
  for (int i = 0; i < kI; ++i) m[i] = -INFINITY;

  load_tile<kQueries, kHeadDim>(q_tile, q, first_query);
  for (int64_t first_key = 0; first_key < all_keys; first_key += kKeys) {
    __syncthreads();  // the values of the tile before are no longer needed
    load_tile<kKeys, kHeadDim>(kv_tile, k, first_key);
    __syncthreads();
    float scores[kI][kJ];
    multiply<kHeadDim, 4>(q_tile, kv_tile, scores);
    __syncthreads();  // nor are the keys
    load_tile<kKeys, kHeadDim>(kv_tile, v, first_key);
    scale_and_mask(scores, factor, visible + tile_y() - first_key);
    soften(scores, m, l, out);
    share_weights(weights, scores);
    __syncthreads();
    accumulate<kHeadDim, kKeys>(weights, kv_tile, out);
  }

#pragma unroll
  for (int i = 0; i < kI; ++i) {
    const int64_t query = first_query + tile_y() + i * kTileY;
    const float sum = row_sum(l[i]);
    store_row<kHeadDim>(y, query, out[i], 1.0F / sum);
    if (tile_x() == 0 && query < s.queries)
      a.logsumexp[head_index * s.queries + query] = m[i] * kLn2 + logf(sum);
  }
}

}  // namespace

void attention_forward(const Context& context, const AttentionShape& shape, const Matrix& q,
                       const Matrix& k, const Matrix& v, const Matrix& y, float* logsumexp) {
  const bool packs = packs_fit_all(q, k, v, y) && shape.head_dim % kWidest == 0;
  const Arguments arguments{shape, q, k, v, y, logsumexp, packs};
  const int64_t heads = shape.batch * shape.heads;
  with_block_rows(context, shape.queries, heads, shape.head_dim, [&]<int kHeadDim, int kQueries>() {
    launch(attention_forward_kernel<kHeadDim, kQueries>,
           blocks_for(blocks_for(shape.queries, kQueries) * heads, 1), kTileThreads,
           context.stream(), DynamicShared{shared_bytes<kHeadDim, kQueries>()}, arguments);
  });
}

}  // namespace lab::cuda
