#include "common/ops/cpu/kernels.h"
#include "common/tensor/parallel.h"
#include "common/tensor/vector_math.h"

namespace lab::cpu {

void swiglu_forward(const Matrix& gate_up, const Matrix& y) {
  parallel_for(0, y.rows, [&](int64_t n) {
    const float* gate = gate_up.row(n);
    const float* up = gate + y.columns;
    float* out = y.row(n);
#pragma omp simd
    for (int64_t i = 0; i < y.columns; ++i) out[i] = gate[i] / (1.0F + fast_exp(-gate[i])) * up[i];
  });
}

// With s = sigmoid(g): silu(g) = g s, silu'(g) = s (1 + g (1 - s)).
void swiglu_backward(const Matrix& gate_up, const Matrix& dy) {
  parallel_for(0, dy.rows, [&](int64_t n) {
    float* gate = gate_up.row(n);
    float* up = gate + dy.columns;
    float* out = dy.row(n);
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

}  // namespace lab::cpu
