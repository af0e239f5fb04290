// Rounding to bfloat16: one warp per row, a pack of neighbours per lane and round. Six bytes are
// moved per element, which is what mixed precision costs on top of the product.
#include "common/ops/cuda/bfloat16.h"
#include "common/ops/cuda/row_warps.h"

namespace lab::cuda {
namespace {

/// Elements that 16 bytes hold: rows of the copy begin at multiples of that, as tensor cores like it.
constexpr int64_t kAligned = 8;

int64_t padded(int64_t columns) { return (columns + kAligned - 1) / kAligned * kAligned; }

template <int kWidth>
struct alignas(kWidth * sizeof(__nv_bfloat16)) HalfPack {
  __nv_bfloat16 v[kWidth];
};

template <int kWidth>
__global__ void round_kernel(Matrix from, MatrixOf<__nv_bfloat16> to) {
  const int64_t n = row_of_warp();
  if (n >= from.rows) return;
  for (int64_t c = threadIdx.x * kWidth; c < from.columns; c += kWarp * kWidth) {
    const Pack<kWidth> in = load<kWidth>(from.row(n) + c);
    HalfPack<kWidth> out;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) out.v[i] = __float2bfloat16(in.v[i]);
    *reinterpret_cast<HalfPack<kWidth>*>(to.row(n) + c) = out;
  }
}

}  // namespace

Bfloat16Copy::Bfloat16Copy(const Context& context, const Matrix& m)
    : memory_(context, static_cast<size_t>(m.rows * padded(m.columns))),
      matrix_{memory_.data(), m.rows, m.columns, padded(m.columns)} {
  const auto kernel = packs_fit(m) ? round_kernel<kWidest> : round_kernel<1>;
  launch(kernel, row_grid(m.rows), row_block(), context.stream(), m, matrix_);
}

}  // namespace lab::cuda
