#include "common/ops/cpu/kernels.h"
#include "common/tensor/parallel.h"

namespace lab::cpu {

template <typename T>
void rope(const MatrixOf<T>& x, const Matrix& table, int64_t length, int64_t first_position,
          Rotation rotation) {
  const int64_t half = table.columns / 2;
  const int64_t heads = x.columns / table.columns;
  const float direction = rotation == Rotation::kForward ? 1.0F : -1.0F;
  parallel_for(0, x.rows, [&](int64_t n) {
    const float* cosine = table.row(first_position + n % length);
    const float* sine = cosine + half;
    for (int64_t h = 0; h < heads; ++h) {
      T* low = x.row(n) + h * table.columns;
      T* high = low + half;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float a = low[i];
        const float b = high[i];
        const float s = direction * sine[i];
        low[i] = a * cosine[i] - b * s;
        high[i] = b * cosine[i] + a * s;
      }
    }
  });
}

template void rope(const MatrixOf<float>&, const Matrix&, int64_t, int64_t, Rotation);
template void rope(const MatrixOf<Bfloat16>&, const Matrix&, int64_t, int64_t, Rotation);

}  // namespace lab::cpu
