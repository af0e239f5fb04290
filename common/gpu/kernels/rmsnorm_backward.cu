// RMSNorm backwards. With r = inverse_rms and g = dy w:
//   dx += r (g - x r² mean(g x)),   dw += sum over rows of dy x r.
//
// dx: one warp per row. dw: a sum down each column, over many rows; additions must happen in a
// fixed order, so no atomics. Kernel 1 cuts the rows into slabs; its block (column tile, slab) adds
// up 32 columns of one slab into a row of `partial`. Kernel 2 adds up the rows of `partial`. Both
// do the same work on different matrices: a tile of 32 columns, whose rows are divided among 8
// warps.
#include <algorithm>

#include "common/gpu/kernels/model_ops.h"
#include "common/gpu/kernels/row_warps.h"

namespace lab::cuda {
namespace {

template <int kWidth, typename T>
__global__ void rmsnorm_dx_kernel(MatrixOf<T> dy, Matrix x, const float* weight,
                                  const float* inverse_rms, Matrix dx) {
  const int64_t n = row_of_warp();
  if (n >= x.rows) return;
  float dot = 0.0F;
  for (int64_t c = threadIdx.x * kWidth; c < x.columns; c += kWarp * kWidth) {
    const Pack<kWidth> gradient = load<kWidth>(dy.row(n) + c);
    const Pack<kWidth> w = load<kWidth>(weight + c);
    const Pack<kWidth> in = load<kWidth>(x.row(n) + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) dot += gradient.v[i] * w.v[i] * in.v[i];
  }
  const float inverse = inverse_rms[n];
  const float mean = warp_sum(dot) * inverse * inverse / static_cast<float>(x.columns);
  for (int64_t c = threadIdx.x * kWidth; c < x.columns; c += kWarp * kWidth) {
    const Pack<kWidth> gradient = load<kWidth>(dy.row(n) + c);
    const Pack<kWidth> w = load<kWidth>(weight + c);
    const Pack<kWidth> in = load<kWidth>(x.row(n) + c);
    Pack<kWidth> out = load<kWidth>(dx.row(n) + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      out.v[i] += inverse * (gradient.v[i] * w.v[i] - in.v[i] * mean);
    store(dx.row(n) + c, out);
  }
}

/// The sum of every warp's `value` for this lane's column, in warp 0.
__device__ float sum_over_warps(float value) {
  __shared__ float sums[kRowsPerBlock][kWarp];
  sums[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  float total = 0.0F;
  if (threadIdx.y == 0)
    for (int warp = 0; warp < kRowsPerBlock; ++warp) total += sums[warp][threadIdx.x];
  return total;
}

__device__ int64_t column_of_lane() {
  return static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
}

template <typename T>
__global__ void rmsnorm_dweight_kernel(MatrixOf<T> dy, Matrix x, const float* inverse_rms,
                                       int64_t slab_rows, Matrix partial) {
  const int64_t column = column_of_lane();
  const int64_t first = blockIdx.y * slab_rows;
  const int64_t last = min(first + slab_rows, x.rows);
  float sum = 0.0F;
  if (column < x.columns)
    for (int64_t n = first + threadIdx.y; n < last; n += kRowsPerBlock)
      sum += load<1>(dy.row(n) + column).v[0] * x.row(n)[column] * inverse_rms[n];
  sum = sum_over_warps(sum);
  if (threadIdx.y == 0 && column < x.columns) partial.row(blockIdx.y)[column] = sum;
}

__global__ void add_column_sums_kernel(Matrix partial, float* dweight) {
  const int64_t column = column_of_lane();
  float sum = 0.0F;
  if (column < partial.columns)
    for (int64_t slab = threadIdx.y; slab < partial.rows; slab += kRowsPerBlock)
      sum += partial.row(slab)[column];
  sum = sum_over_warps(sum);
  if (threadIdx.y == 0 && column < partial.columns) dweight[column] += sum;
}

constexpr int64_t kMostSlabs = 128;
constexpr int64_t kLeastSlabRows = 64;

}  // namespace

template <typename T>
void rmsnorm_backward(const Context& context, const MatrixOf<T>& dy, const Matrix& x,
                      const float* weight, const float* inverse_rms, const Matrix& dx,
                      float* dweight) {
  if (x.rows == 0 || x.columns == 0) return;
  const bool packs = packs_fit_all(dy, x, dx) && packs_fit(weight, x.columns, x.columns);
  launch(packs ? rmsnorm_dx_kernel<kWidest, T> : rmsnorm_dx_kernel<1, T>, row_grid(x.rows),
         row_block(), context.stream(), dy, x, weight, inverse_rms, dx);

  const int64_t slab_rows = std::max(kLeastSlabRows, (x.rows + kMostSlabs - 1) / kMostSlabs);
  const unsigned slabs = blocks_for(x.rows, slab_rows);
  const Scratch<float> sums(context, static_cast<size_t>(slabs * x.columns));
  const Matrix partial{sums.data(), slabs, x.columns, x.columns};
  const unsigned tiles = blocks_for(x.columns, kWarp);
  launch(rmsnorm_dweight_kernel<T>, dim3(tiles, slabs), row_block(), context.stream(), dy, x,
         inverse_rms, slab_rows, partial);
  launch(add_column_sums_kernel, tiles, row_block(), context.stream(), partial, dweight);
}
template void rmsnorm_backward(const Context&, const Matrix&, const Matrix&, const float*,
                               const float*, const Matrix&, float*);
template void rmsnorm_backward(const Context&, const Bfloat16Matrix&, const Matrix&, const float*,
                               const float*, const Matrix&, float*);

}  // namespace lab::cuda
