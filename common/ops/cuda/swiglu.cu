// SwiGLU: y = g s u, with g the gate, u the other half of the row ("up") and s = 1 / (1 + e^-g).
// Backwards: dg = dy u s (1 + g (1 - s)), du = dy g s.
//
// One warp per row, each element by itself. The backward pass overwrites its inputs: a thread has
// read the elements that it writes, and nobody else reads them.
#include "common/ops/cuda/model_ops.h"
#include "common/ops/cuda/row_warps.h"

namespace lab::cuda {
namespace {

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

template <int kWidth>
__global__ void swiglu_forward_kernel(Matrix gate_up, Matrix y) {
  const int64_t n = row_of_warp();
  if (n >= y.rows) return;
  const float* gate = gate_up.row(n);
  const float* up = gate + y.columns;
  for (int64_t c = threadIdx.x * kWidth; c < y.columns; c += kWarp * kWidth) {
    const Pack<kWidth> g = load<kWidth>(gate + c);
    Pack<kWidth> out = load<kWidth>(up + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) out.v[i] *= g.v[i] * sigmoid(g.v[i]);
    store(y.row(n) + c, out);
  }
}

template <int kWidth>
__global__ void swiglu_backward_kernel(Matrix gate_up, Matrix dy) {
  const int64_t n = row_of_warp();
  if (n >= dy.rows) return;
  float* gate = gate_up.row(n);
  float* up = gate + dy.columns;
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

/// `half` fits and so does each half of a row of gate_up.
bool packs_fit_halves(const Matrix& gate_up, const Matrix& half) {
  return packs_fit(half) && packs_fit(gate_up.data, half.columns, gate_up.stride);
}

}  // namespace

void swiglu_forward(const Context& context, const Matrix& gate_up, const Matrix& y) {
  const auto kernel =
      packs_fit_halves(gate_up, y) ? swiglu_forward_kernel<kWidest> : swiglu_forward_kernel<1>;
  launch(kernel, row_grid(y.rows), row_block(), context.stream(), gate_up, y);
}

void swiglu_backward(const Context& context, const Matrix& gate_up, const Matrix& dy) {
  const auto kernel =
      packs_fit_halves(gate_up, dy) ? swiglu_backward_kernel<kWidest> : swiglu_backward_kernel<1>;
  launch(kernel, row_grid(dy.rows), row_block(), context.stream(), gate_up, dy);
}

}  // namespace lab::cuda
