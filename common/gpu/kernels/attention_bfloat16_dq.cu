// dQ of attention in bfloat16: one block per tile of queries, which goes through the keys. Rows of
// a warp are queries.
#include "common/gpu/cuda/launch.h"
#include "common/gpu/kernels/attention_bfloat16_backward.h"

namespace lab::cuda {
namespace {

template <int kHeadDim, int kWarps>
__global__ void __launch_bounds__(BackwardTiles<kHeadDim, kWarps>::kThreads,
                                  BackwardTiles<kHeadDim, kWarps>::kAtOnce)
    attention_dq_bfloat16_kernel(BackwardArguments a) {
  using T = BackwardTiles<kHeadDim, kWarps>;
  const T tiles;
  const AttentionShape& s = a.shape;
  const int64_t heads = s.batch * s.heads;
  const int64_t last_tile = (s.queries - 1) / T::kStay;
  const int64_t first_query = (last_tile - blockIdx.x / heads) * T::kStay;  // most keys first
  const int64_t warp_query = first_query + warp() * kBlock;
  const int64_t head_index = blockIdx.x % heads;
  const int64_t b = head_index / s.heads;
  const int64_t h = head_index % s.heads;
  const int64_t kv_head = h / (s.heads / s.kv_heads);
  const float factor = score_factor(s);
  const float factor2 = factor * kLog2e;
  const auto head = [&](const Bfloat16Matrix& m, int64_t which) {
    return head_of(m, b, which, s.queries, s.head_dim, a.packs);
  };

  typename T::StayingRows(head(a.q, h), first_query).store(tiles.stay_a);
  typename T::StayingRows(head(a.dy, h), first_query).store(tiles.stay_b);
  __syncthreads();
  const typename T::Left queries(T::own(tiles.stay_a));
  const typename T::Left gradients(T::own(tiles.stay_b));
  float logsumexp2[2] = {};
  float delta[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t query = warp_query + row_of(2 * half);
    if (query >= s.queries) continue;
    logsumexp2[half] = a.logsumexp[head_index * s.queries + query] * kLog2e;
    delta[half] = a.delta[head_index * s.queries + query];
  }

  typename T::Sum dq = {};
  const int64_t all_keys = min(first_query + T::kStay, s.queries);
  // While products are computed, the tile of the next ones is being loaded.
  typename T::PassingRows k_rows(head(a.k, kv_head), 0);
  for (int64_t first = 0; first < all_keys; first += T::kPass) {
    // Whether a query of this warp sees any of these keys.
    const bool sees_any = first < warp_query + kBlock;
    // The contents of the tiles are no longer needed.
    __syncthreads();
    k_rows.store(tiles.pass_a);
    const typename T::PassingRows v_rows(head(a.v, kv_head), first);
    __syncthreads();
    typename T::Product p;
    if (sees_any) {
      multiply(queries, tiles.pass_a, p);
#pragma unroll
      for (int n = 0; n < T::kN; ++n)
#pragma unroll
        for (int e = 0; e < kNumbers; ++e) p[n][e] = exp2f(p[n][e] * factor2 - logsumexp2[e / 2]);
      if (first + T::kPass > warp_query + 1) {
        const int seen = static_cast<int>(warp_query + 1 - first);  // by the warp's first query
        fill_where(p, 0.0F, [&](int row, int column) { return column >= seen + row; });
      }
    }
    v_rows.store(tiles.pass_b);
    k_rows = typename T::PassingRows(head(a.k, kv_head), first + T::kPass);
    __syncthreads();
    if (!sees_any) continue;
    typename T::Product ds;
    multiply(gradients, tiles.pass_b, ds);
#pragma unroll
    for (int n = 0; n < T::kN; ++n)
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) ds[n][e] = p[n][e] * (ds[n][e] - delta[e / 2]);
    accumulate<kHeadDim>(ds, tiles.pass_a, dq);
  }
  store_rows<kHeadDim>(dq, {factor, factor}, T::own(tiles.stay_a), head(a.dq, h), warp_query);
}

}  // namespace

void attention_dq(const Context& context, const BackwardArguments& arguments) {
  const AttentionShape& s = arguments.shape;
  const int64_t heads = s.batch * s.heads;
  with_block_size(context, s.queries, heads, s.head_dim, [&]<int kHeadDim, int kWarps>() {
    using T = BackwardTiles<kHeadDim, kWarps>;
    launch(attention_dq_bfloat16_kernel<kHeadDim, kWarps>,
           blocks_for(blocks_for(s.queries, T::kStay) * heads, 1), T::kThreads, context.stream(),
           DynamicShared{T::shared_bytes()}, arguments);
  });
}

}  // namespace lab::cuda
