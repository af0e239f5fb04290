// SwiGLU: y = g s u, with g the gate, u the other half of the row ("up") and s = 1 / (1 + e^-g).
// Backwards: dg = dy u s (1 + g (1 - s)), du = dy g s.
//
// One warp per row, element by element. The backward pass overwrites its inputs: each thread writes
// only elements that it has read, and no other thread reads them.
#include "common/gpu/kernels/model_ops.h"
#include "common/gpu/kernels/row_warps.h"

namespace lab::cuda {
namespace {

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

template <int kWidth, typename T>
__global__ void swiglu_forward_kernel(MatrixOf<T> gate_up, MatrixOf<T> y) {
  const int64_t n = row_of_warp();
  if (n >= y.rows) return;
  const T* gate = gate_up.row(n);
  const T* up = gate + y.columns;
  for (int64_t c = threadIdx.x * kWidth; c < y.columns; c += kWarp * kWidth) {
    const Pack<kWidth> g = load<kWidth>(gate + c);
    Pack<kWidth> out = load<kWidth>(up + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) out.v[i] *= g.v[i] * sigmoid(g.v[i]);
    store(y.row(n) + c, out);
  }
}

template <int kWidth, typename T>
__global__ void swiglu_backward_kernel(MatrixOf<T> gate_up, MatrixOf<T> dy) {
  const int64_t n = row_of_warp();
  if (n >= dy.rows) return;
  T* gate = gate_up.row(n);
  T* up = gate + dy.columns;
  for (int64_t c = threadIdx.x * kWidth; c < dy.columns; c += kWarp * kWidth) {
    Pack<kWidth> gates = load<kWidth>(gate + c);
    Pack<kWidth> ups = load<kWidth>(up + c);
    Pack<kWidth> gradients = load<kWidth>(dy.row(n) + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float g = gates.v[i];
      const float u = ups.v[i];
      const float gradient = gradients.v[i];
      const float s = sigmoid(g);
      gates.v[i] = gradient * u * s * (1.0F + g * (1.0F - s));
      ups.v[i] = gradient * g * s;
      gradients.v[i] = g * s * u;
    }
    store(gate + c, gates);
    store(up + c, ups);
    store(dy.row(n) + c, gradients);
  }
}

/// `half` fits, and so does each half of a row of gate_up.
template <typename T>
bool packs_fit_halves(const MatrixOf<T>& gate_up, const MatrixOf<T>& half) {
  return packs_fit(half) && packs_fit(gate_up.data, half.columns, gate_up.stride);
}

}  // namespace

template <typename T>
void swiglu_forward(const Context& context, const MatrixOf<T>& gate_up, const MatrixOf<T>& y) {
  const auto kernel =
      packs_fit_halves(gate_up, y) ? swiglu_forward_kernel<kWidest, T> : swiglu_forward_kernel<1, T>;
  launch(kernel, row_grid(y.rows), row_block(), context.stream(), gate_up, y);
}
template void swiglu_forward(const Context&, const Matrix&, const Matrix&);
template void swiglu_forward(const Context&, const Bfloat16Matrix&, const Bfloat16Matrix&);

template <typename T>
void swiglu_backward(const Context& context, const MatrixOf<T>& gate_up, const MatrixOf<T>& dy) {
  const auto kernel = packs_fit_halves(gate_up, dy) ? swiglu_backward_kernel<kWidest, T>
                                                    : swiglu_backward_kernel<1, T>;
  launch(kernel, row_grid(dy.rows), row_block(), context.stream(), gate_up, dy);
}
template void swiglu_backward(const Context&, const Matrix&, const Matrix&);
template void swiglu_backward(const Context&, const Bfloat16Matrix&, const Bfloat16Matrix&);

}  // namespace lab::cuda
