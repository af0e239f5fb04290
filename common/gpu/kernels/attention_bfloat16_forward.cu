// Causal attention of bfloat16, forward, on tensor cores (Dao, 2023: "FlashAttention-2"). The
// method is that of attention_forward.cu: keys in tiles, and the online softmax.
//
// A warp has 16 queries and keeps them, their scores and their sums in registers, as fragments
// (attention_fragments.h); a block has 4 warps, or 2 where blocks would be too few to keep the GPU
// busy. Keys and values of a tile are in shared memory, which all warps read. Scores never leave
// their lanes: the 4 lanes that share a row agree on its largest score, and hold exactly the
// probabilities that the product with the values needs from them.
#include <cmath>

#include "common/gpu/cuda/dynamic_shared.h"
#include "common/gpu/cuda/launch.h"
#include "common/gpu/kernels/attention.h"
#include "common/gpu/kernels/attention_fragments.h"

namespace lab::cuda {
namespace {

struct Arguments {
  AttentionShape shape;
  Bfloat16Matrix q, k, v, y;
  float* logsumexp;
  bool packs;
};

/// Rows of all tiles.
template <int kWarps>
constexpr int kRows = kWarps* kBlock;

/// Keys and values; the block's queries pass through the memory of the keys.
template <int kHeadDim, int kWarps>
constexpr size_t shared_bytes() {
  return size_t{2} * kRows<kWarps> * kPitch<kHeadDim> * sizeof(__nv_bfloat16);
}

/// Largest (or sum) over the 4 lanes that share a row.
__device__ float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ float row_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

/// State of the lane's two rows: the largest score, the sum of e^(score - largest) (of this lane's
/// keys only: lanes are added up at the end), and the sum of e^(score - largest) v.
template <int kHeadDim>
struct Sums {
  float largest[2] = {-INFINITY, -INFINITY};
  float exponentials[2] = {};
  float values[kHeadDim / kQuarter][kNumbers] = {};

  /// Scores become 2^(factor2 (score - largest)); sums are brought up to date.
  template <int kN>
  __device__ void soften(float (&scores)[kN][kNumbers], float factor2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = largest[half];
#pragma unroll
      for (int n = 0; n < kN; ++n)
        now = fmaxf(now, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      now = row_max(now);
      const float shrink = exp2f((largest[half] - now) * factor2);
      const float shift = now * factor2;
      largest[half] = now;
      exponentials[half] *= shrink;
#pragma unroll
      for (auto& fragment : values) {
        fragment[2 * half] *= shrink;
        fragment[2 * half + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[n][e] = exp2f(scores[n][e] * factor2 - shift);
          exponentials[half] += scores[n][e];
        }
    }
  }
};

template <int kHeadDim, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp) attention_forward_bfloat16_kernel(Arguments a) {
  constexpr int kTile = kRows<kWarps>;
  using Rows = TileRows<kTile, kHeadDim, kWarps * kWarp>;
  __nv_bfloat16* k_tile = dynamic_shared<__nv_bfloat16>();
  __nv_bfloat16* v_tile = k_tile + kTile * kPitch<kHeadDim>;

  const AttentionShape& s = a.shape;
  const int64_t head_index = blockIdx.x % (s.batch * s.heads);
  const int64_t blocks_before = blockIdx.x / (s.batch * s.heads);  // those with the most keys first
  const int64_t first_query = ((s.queries - 1) / kTile - blocks_before) * kTile;
  const int64_t b = head_index / s.heads;
  const int64_t h = head_index % s.heads;
  const int64_t kv_head = h / (s.heads / s.kv_heads);
  const Bfloat16Head q = head_of(a.q, b, h, s.queries, s.head_dim, a.packs);
  const Bfloat16Head k = head_of(a.k, b, kv_head, s.keys, s.head_dim, a.packs);
  const Bfloat16Head v = head_of(a.v, b, kv_head, s.keys, s.head_dim, a.packs);
  const Bfloat16Head y = head_of(a.y, b, h, s.queries, s.head_dim, a.packs);

  // Keys that a query sees: the block's last, the warp's first.
  const int64_t all_keys = min(s.keys - s.queries + first_query + kTile, s.keys);
  const int64_t warp_query = first_query + warp() * kBlock;
  const int64_t visible = s.keys - s.queries + warp_query + 1;
  const float factor = score_factor(s);

  Rows(q, first_query).store(k_tile);
  __syncthreads();
  const LeftFactor<kHeadDim, true> queries(k_tile + warp() * kBlock * kPitch<kHeadDim>);
  __syncthreads();
  Sums<kHeadDim> sums;
  // While one product is computed, the tile of the next is being loaded.
  Rows k_rows(k, 0);
  for (int64_t first_key = 0; first_key < all_keys; first_key += kTile) {
    // Whether a query of this warp sees any of these keys.
    const bool sees_any = first_key < visible + kBlock - 1;
    k_rows.store(k_tile);
    const Rows v_rows(v, first_key);
    __syncthreads();  // the keys are there, and the values before are no longer needed
    float scores[kTile / kQuarter][kNumbers];
    if (sees_any) {
      multiply(queries, k_tile, scores);
      if (first_key + kTile > visible) {
        const int seen = static_cast<int>(visible - first_key);  // by the warp's first query
        fill_where(scores, -INFINITY, [&](int row, int column) { return column >= seen + row; });
      }
      sums.soften(scores, factor * kLog2e);
    }
    v_rows.store(v_tile);
    k_rows = Rows(k, first_key + kTile);
    __syncthreads();  // the values are there, and the keys are no longer needed
    if (sees_any) accumulate<kHeadDim>(scores, v_tile, sums.values);
  }

  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = row_sum(sums.exponentials[half]);
    inverse[half] = 1.0F / sum;
    const int64_t query = warp_query + row_of(2 * half);
    if (lane_column() == 0 && query < s.queries)
      a.logsumexp[head_index * s.queries + query] = sums.largest[half] * factor + logf(sum);
  }
  store_rows<kHeadDim>(sums.values, inverse, k_tile + warp() * kBlock * kPitch<kHeadDim>, y,
                       warp_query);
}

}  // namespace

void attention_forward(const Context& context, const AttentionShape& shape, const Bfloat16Matrix& q,
                       const Bfloat16Matrix& k, const Bfloat16Matrix& v, const Bfloat16Matrix& y,
                       float* logsumexp) {
  const bool packs = eights_fit(shape.head_dim, q, k, v, y);
  const Arguments arguments{shape, q, k, v, y, logsumexp, packs};
  const int64_t heads = shape.batch * shape.heads;
  with_block_size(context, shape.queries, heads, shape.head_dim, [&]<int kHeadDim, int kWarps>() {
    launch(attention_forward_bfloat16_kernel<kHeadDim, kWarps>,
           blocks_for(blocks_for(shape.queries, kRows<kWarps>) * heads, 1), kWarps * kWarp,
           context.stream(), DynamicShared{shared_bytes<kHeadDim, kWarps>()}, arguments);
  });
}

}  // namespace lab::cuda
