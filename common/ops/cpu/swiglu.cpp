#include "common/ops/cpu/kernels.h"
#include "common/tensor/parallel.h"
#include "common/tensor/vector_math.h"

namespace lab::cpu {

template <typename T>
void swiglu_forward(const MatrixOf<T>& gate_up, const MatrixOf<T>& y) {
  parallel_for(0, y.rows, [&](int64_t n) {
    const T* gate = gate_up.row(n);
    const T* up = gate + y.columns;
    T* out = y.row(n);
#pragma omp simd
    for (int64_t i = 0; i < y.columns; ++i) {
      const float g = gate[i];
      out[i] = g / (1.0F + fast_exp(-g)) * up[i];
    }
  });
}

// With s = sigmoid(g): silu(g) = g s, silu'(g) = s (1 + g (1 - s)).
template <typename T>
void swiglu_backward(const MatrixOf<T>& gate_up, const MatrixOf<T>& dy) {
  parallel_for(0, dy.rows, [&](int64_t n) {
    T* gate = gate_up.row(n);
    T* up = gate + dy.columns;
    T* out = dy.row(n);
#pragma omp simd
    for (int64_t i = 0; i < dy.columns; ++i) {
      const float g = gate[i];
      const float u = up[i];
      const float gradient = out[i];
      const float s = 1.0F / (1.0F + fast_exp(-g));
      gate[i] = gradient * u * s * (1.0F + g * (1.0F - s));
      up[i] = gradient * g * s;
      out[i] = g * s * u;
    }
  });
}

template void swiglu_forward(const MatrixOf<float>&, const MatrixOf<float>&);
template void swiglu_forward(const MatrixOf<Bfloat16>&, const MatrixOf<Bfloat16>&);
template void swiglu_backward(const MatrixOf<float>&, const MatrixOf<float>&);
template void swiglu_backward(const MatrixOf<Bfloat16>&, const MatrixOf<Bfloat16>&);

}  // namespace lab::cpu
