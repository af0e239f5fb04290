// dK and dV of attention in bfloat16: one block per tile of keys, which goes through the queries of
// all heads that share the keys, in order. Rows of a warp are keys: scores and probabilities are
// computed transposed, so they can be the left factors of the next products.
#include "common/gpu/cuda/launch.h"
#include "common/gpu/kernels/attention_bfloat16_backward.h"

namespace lab::cuda {
namespace {

/// Queries beyond the last one are rows of zeros in their tiles, and their delta is 0: they add
/// nothing.
template <int kHeadDim, int kWarps>
__global__ void __launch_bounds__(BackwardTiles<kHeadDim, kWarps>::kThreads,
                                  BackwardTiles<kHeadDim, kWarps>::kAtOnce)
    attention_dk_dv_bfloat16_kernel(BackwardArguments a) {
  using T = BackwardTiles<kHeadDim, kWarps>;
  const T tiles;
  const AttentionShape& s = a.shape;
  const int64_t kv_heads = s.batch * s.kv_heads;
  const int64_t first_key = blockIdx.x / kv_heads * T::kStay;  // those with most queries first
  const int64_t warp_key = first_key + warp() * kBlock;
  const int64_t b = blockIdx.x % kv_heads / s.kv_heads;
  const int64_t kv_head = blockIdx.x % s.kv_heads;
  const int64_t group = s.heads / s.kv_heads;
  const float factor = score_factor(s);
  const float factor2 = factor * kLog2e;
  const auto head = [&](const Bfloat16Matrix& m, int64_t h) {
    return head_of(m, b, h, s.queries, s.head_dim, a.packs);
  };

  typename T::StayingRows(head(a.k, kv_head), first_key).store(tiles.stay_a);
  typename T::StayingRows(head(a.v, kv_head), first_key).store(tiles.stay_b);
  __syncthreads();
  const typename T::Left keys(T::own(tiles.stay_a));
  const typename T::Left values(T::own(tiles.stay_b));
  typename T::Sum dk = {};
  typename T::Sum dv = {};

  // Loaded in turn: the queries of a tile, and the saved values of one query per thread.
  struct Passing {
    typename T::PassingRows queries;
    float logsumexp2;
    float delta;
  };
  const auto read = [&](int64_t h, int64_t first) {
    const int64_t query = first + static_cast<int>(threadIdx.x);
    const int64_t saved = (b * s.heads + h) * s.queries + query;
    const bool exists = static_cast<int>(threadIdx.x) < T::kPass && query < s.queries;
    return Passing{{head(a.q, h), first},
                   exists ? a.logsumexp[saved] * kLog2e : 0.0F,
                   exists ? a.delta[saved] : 0.0F};
  };
  const int64_t first_head = kv_head * group;
  const int64_t last_head = first_head + group - 1;
  // While products are computed, the operands of the next ones are being loaded.
  Passing passing = read(first_head, first_key);
  for (int64_t h = first_head; h <= last_head; ++h) {
    for (int64_t first = first_key; first < s.queries; first += T::kPass) {
      // Whether these queries see any of the warp's keys.
      const bool seen = first + T::kPass > warp_key;
      // The contents of the tiles are no longer needed.
      __syncthreads();
      passing.queries.store(tiles.pass_a);
      if (static_cast<int>(threadIdx.x) < T::kPass) {
        tiles.logsumexp2[threadIdx.x] = passing.logsumexp2;
        tiles.delta[threadIdx.x] = passing.delta;
      }
      const typename T::PassingRows dy_rows(head(a.dy, h), first);
      __syncthreads();
      typename T::Product p;
      if (seen) {
        multiply(keys, tiles.pass_a, p);
#pragma unroll
        for (int n = 0; n < T::kN; ++n)
#pragma unroll
          for (int e = 0; e < kNumbers; ++e)
            p[n][e] = exp2f(p[n][e] * factor2 - tiles.logsumexp2[column_of(n, e)]);
        if (first < warp_key + kBlock - 1) {
          const int key = static_cast<int>(warp_key - first);  // the warp's first, from `first` on
          fill_where(p, 0.0F, [&](int row, int column) { return column < key + row; });
        }
      }
      dy_rows.store(tiles.pass_b);
      // After the last query of the last head there is nothing to read.
      const bool next_head = first + T::kPass >= s.queries && h < last_head;
      passing = read(next_head ? h + 1 : h, next_head ? first_key : first + T::kPass);
      __syncthreads();
      if (!seen) continue;
      accumulate<kHeadDim>(p, tiles.pass_b, dv);
      typename T::Product ds;
      multiply(values, tiles.pass_b, ds);
#pragma unroll
      for (int n = 0; n < T::kN; ++n)
#pragma unroll
        for (int e = 0; e < kNumbers; ++e)
          ds[n][e] = p[n][e] * (ds[n][e] - tiles.delta[column_of(n, e)]);
      accumulate<kHeadDim>(ds, tiles.pass_a, dk);
    }
  }
  __nv_bfloat16* space = T::own(tiles.stay_a);
  store_rows<kHeadDim>(dk, {factor, factor}, space, head(a.dk, kv_head), warp_key);
  store_rows<kHeadDim>(dv, {1.0F, 1.0F}, space, head(a.dv, kv_head), warp_key);
}

}  // namespace

void attention_dk_dv(const Context& context, const BackwardArguments& arguments) {
  const AttentionShape& s = arguments.shape;
  const int64_t heads = s.batch * s.kv_heads;
  with_block_size(context, s.queries, heads, s.head_dim, [&]<int kHeadDim, int kWarps>() {
    using T = BackwardTiles<kHeadDim, kWarps>;
    launch(attention_dk_dv_bfloat16_kernel<kHeadDim, kWarps>,
           blocks_for(blocks_for(s.queries, T::kStay) * heads, 1), T::kThreads, context.stream(),
           DynamicShared{T::shared_bytes()}, arguments);
  });
}

}  // namespace lab::cuda
