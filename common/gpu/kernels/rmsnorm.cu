// RMSNorm, forward: y = x r w with r = 1 / sqrt(mean(x²) + epsilon).
//
// One warp per row reads the row twice: once for the sum of squares, once (from the cache) to scale
// it. The sum needs no shared memory: the lanes exchange registers.
#include "common/gpu/kernels/model_ops.h"
#include "common/gpu/kernels/row_warps.h"

namespace lab::cuda {
namespace {

/// One row: y = x * inverse * weight.
template <int kWidth, typename T>
__device__ void apply_to_row(const float* x, const float* weight, float inverse, T* y,
                             int64_t columns) {
  for (int64_t c = threadIdx.x * kWidth; c < columns; c += kWarp * kWidth) {
    Pack<kWidth> pack = load<kWidth>(x + c);
    const Pack<kWidth> w = load<kWidth>(weight + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) pack.v[i] = pack.v[i] * inverse * w.v[i];
    store(y + c, pack);
  }
}

template <int kWidth, typename T>
__global__ void rmsnorm_forward_kernel(Matrix x, const float* weight, float epsilon, MatrixOf<T> y,
                                       float* inverse_rms) {
  const int64_t n = row_of_warp();
  if (n >= x.rows) return;
  float sum = 0.0F;
  for (int64_t c = threadIdx.x * kWidth; c < x.columns; c += kWarp * kWidth) {
    const Pack<kWidth> pack = load<kWidth>(x.row(n) + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += pack.v[i] * pack.v[i];
  }
  const float mean = warp_sum(sum) / static_cast<float>(x.columns);
  const float inverse = 1.0F / sqrtf(mean + epsilon);
  if (threadIdx.x == 0) inverse_rms[n] = inverse;
  apply_to_row<kWidth>(x.row(n), weight, inverse, y.row(n), x.columns);
}

template <int kWidth, typename T>
__global__ void rmsnorm_apply_kernel(Matrix x, const float* weight, const float* inverse_rms,
                                     MatrixOf<T> y) {
  const int64_t n = row_of_warp();
  if (n < x.rows) apply_to_row<kWidth>(x.row(n), weight, inverse_rms[n], y.row(n), x.columns);
}

template <typename T>
bool packs_fit_norm(const Matrix& x, const float* weight, const MatrixOf<T>& y) {
  return packs_fit_all(x, y) && packs_fit(weight, x.columns, x.columns);
}

}  // namespace

template <typename T>
void rmsnorm_forward(const Context& context, const Matrix& x, const float* weight, float epsilon,
                     const MatrixOf<T>& y, float* inverse_rms) {
  const auto kernel = packs_fit_norm(x, weight, y) ? rmsnorm_forward_kernel<kWidest, T>
                                                   : rmsnorm_forward_kernel<1, T>;
  launch(kernel, row_grid(x.rows), row_block(), context.stream(), x, weight, epsilon, y,
         inverse_rms);
}
template void rmsnorm_forward(const Context&, const Matrix&, const float*, float, const Matrix&,
                              float*);
template void rmsnorm_forward(const Context&, const Matrix&, const float*, float,
                              const Bfloat16Matrix&, float*);

template <typename T>
void rmsnorm_apply(const Context& context, const Matrix& x, const float* weight,
                   const float* inverse_rms, const MatrixOf<T>& y) {
  const auto kernel =
      packs_fit_norm(x, weight, y) ? rmsnorm_apply_kernel<kWidest, T> : rmsnorm_apply_kernel<1, T>;
  launch(kernel, row_grid(x.rows), row_block(), context.stream(), x, weight, inverse_rms, y);
}
template void rmsnorm_apply(const Context&, const Matrix&, const float*, const float*,
                            const Matrix&);
template void rmsnorm_apply(const Context&, const Matrix&, const float*, const float*,
                            const Bfloat16Matrix&);

}  // namespace lab::cuda
