// Embedding: y[n] = table[token[n]], and backwards dtable[token[n]] += dy[n].
//
// Forward: one warp per row. Backward: several positions may add to the same row of the table. With
// atomic additions, their order would be arbitrary, and so would the last bits. Instead one block
// adds all rows of a token, in the order of the positions: the block of the token's first position.
// Every other block finds an earlier position with its token and returns.
#include "common/gpu/kernels/model_ops.h"
#include "common/gpu/kernels/row_warps.h"

namespace lab::cuda {
namespace {

template <int kWidth>
__global__ void embedding_forward_kernel(const int32_t* tokens, Matrix table, Matrix y) {
  const int64_t n = row_of_warp();
  if (n >= y.rows) return;
  const int32_t token = tokens[n];
  for (int64_t c = threadIdx.x * kWidth; c < y.columns; c += kWarp * kWidth) {
    Pack<kWidth> pack{};  // zeros, for padding
    if (token >= 0) pack = load<kWidth>(table.row(token) + c);
    store(y.row(n) + c, pack);
  }
}

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

/// Whether a position before n holds `token`; the same answer in all threads.
__device__ bool occurs_before(const int32_t* tokens, int64_t n, int32_t token) {
  int found = 0;
  for (int64_t m = threadIdx.x; m < n && found == 0; m += kThreads) found = tokens[m] == token;
  return __syncthreads_or(found) != 0;
}

/// Block (n, part): the token of position n, columns from part * kThreads * kWidth on.
template <int kWidth>
__global__ void embedding_backward_kernel(const int32_t* tokens, Matrix dy, Matrix dtable) {
  __shared__ unsigned same[kWarps];  // a bit per position
  const int64_t n = blockIdx.x;
  const int32_t token = tokens[n];
  if (token < 0 || occurs_before(tokens, n, token)) return;

  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kWidth;
  const bool in_row = column < dy.columns;
  Pack<kWidth> sum{};
  if (in_row) sum = load<kWidth>(dtable.row(token) + column);

  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int64_t first = n; first < dy.rows; first += kThreads) {
    const int64_t mine = first + threadIdx.x;
    const unsigned found = __ballot_sync(kAllLanes, mine < dy.rows && tokens[mine] == token);
    if (threadIdx.x % kWarp == 0) same[warp] = found;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
      for (unsigned bits = same[w]; bits != 0; bits &= bits - 1) {
        const int64_t row = first + w * kWarp + __ffs(static_cast<int>(bits)) - 1;
        if (!in_row) continue;
        const Pack<kWidth> gradient = load<kWidth>(dy.row(row) + column);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum.v[i] += gradient.v[i];
      }
    }
    __syncthreads();
  }
  if (in_row) store(dtable.row(token) + column, sum);
}

}  // namespace

void embedding_forward(const Context& context, const int32_t* tokens, const Matrix& table,
                       const Matrix& y) {
  const auto kernel =
      packs_fit_all(table, y) ? embedding_forward_kernel<kWidest> : embedding_forward_kernel<1>;
  launch(kernel, row_grid(y.rows), row_block(), context.stream(), tokens, table, y);
}

void embedding_backward(const Context& context, const int32_t* tokens, const Matrix& dy,
                        const Matrix& dtable) {
  const bool packs = packs_fit_all(dy, dtable);
  const auto kernel = packs ? embedding_backward_kernel<kWidest> : embedding_backward_kernel<1>;
  const unsigned parts = blocks_for(dy.columns, kThreads * (packs ? kWidest : 1));
  launch(kernel, dim3(static_cast<unsigned>(dy.rows), parts), kThreads, context.stream(), tokens,
         dy, dtable);
}

}  // namespace lab::cuda
