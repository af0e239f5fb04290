#include <cmath>

#include "common/ops/cpu/kernels.h"
#include "common/tensor/parallel.h"

namespace lab::cpu {

template <typename T>
void rmsnorm_forward(const Matrix& x, const float* weight, float epsilon, const MatrixOf<T>& y,
                     float* inverse_rms) {
  const int64_t channels = x.columns;
  parallel_for(0, x.rows, [&](int64_t n) {
    const float* row = x.row(n);
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < channels; ++c) sum += row[c] * row[c];
    inverse_rms[n] = 1.0F / std::sqrt(sum / static_cast<float>(channels) + epsilon);
  });
  rmsnorm_apply(x, weight, inverse_rms, y);
}

template <typename T>
void rmsnorm_apply(const Matrix& x, const float* weight, const float* inverse_rms,
                   const MatrixOf<T>& y) {
  parallel_for(0, x.rows, [&](int64_t n) {
    const float* in = x.row(n);
    T* out = y.row(n);
    const float inverse = inverse_rms[n];
#pragma omp simd
    for (int64_t c = 0; c < x.columns; ++c) out[c] = in[c] * inverse * weight[c];
  });
}

// With r = inverse_rms, x^ = x r and g = dy * weight:  dx = r (g - x^ mean(g x^)),
// dweight = sum over rows of dy x^.
template <typename T>
void rmsnorm_backward(const MatrixOf<T>& dy, const Matrix& x, const float* weight,
                      const float* inverse_rms, const Matrix& dx, float* dweight) {
  const int64_t channels = x.columns;
  parallel_for(0, x.rows, [&](int64_t n) {
    const T* gradient = dy.row(n);
    const float* in = x.row(n);
    const float* w = weight;
    float* out = dx.row(n);
    const float inverse = inverse_rms[n];
    float dot = 0.0F;
#pragma omp simd reduction(+ : dot)
    for (int64_t c = 0; c < channels; ++c) dot += gradient[c] * w[c] * in[c];
    const float mean = dot * inverse * inverse / static_cast<float>(channels);
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) out[c] += inverse * (gradient[c] * w[c] - in[c] * mean);
  });
  // Threads divide the channels among them: each sum is formed in the order of the rows.
  parallel_blocks(channels, 64, [&](int64_t first, int64_t last) {
    for (int64_t n = 0; n < x.rows; ++n) {
      const T* gradient = dy.row(n);
      const float* in = x.row(n);
      const float inverse = inverse_rms[n];
#pragma omp simd
      for (int64_t c = first; c < last; ++c) dweight[c] += gradient[c] * in[c] * inverse;
    }
  });
}

template void rmsnorm_forward(const Matrix&, const float*, float, const MatrixOf<float>&, float*);
template void rmsnorm_forward(const Matrix&, const float*, float, const MatrixOf<Bfloat16>&,
                              float*);
template void rmsnorm_apply(const Matrix&, const float*, const float*, const MatrixOf<float>&);
template void rmsnorm_apply(const Matrix&, const float*, const float*, const MatrixOf<Bfloat16>&);
template void rmsnorm_backward(const MatrixOf<float>&, const Matrix&, const float*, const float*,
                               const Matrix&, float*);
template void rmsnorm_backward(const MatrixOf<Bfloat16>&, const Matrix&, const float*, const float*,
                               const Matrix&, float*);

}  // namespace lab::cpu
