// Rotary position embedding. Element i of a head's first half and element i of its second half are
// a point in the plane, which is turned by the angle of its position and of i:
//   (a, b) -> (a cos - b sin, b cos + a sin); the backward pass turns back (sin with a minus).
//
// One warp per row; its lanes divide the pairs of all heads among them. No two lanes touch the same
// pair, so it works in place.
#include "common/gpu/kernels/model_ops.h"
#include "common/gpu/kernels/row_warps.h"

namespace lab::cuda {
namespace {

/// x: `heads` heads of 2 * half elements per row.
template <int kWidth, typename T>
__global__ void rope_kernel(MatrixOf<T> x, Matrix table, int heads, int half, int64_t length,
                            int64_t first_position, float direction) {
  const int64_t n = row_of_warp();
  if (n >= x.rows) return;
  const float* cosines = table.row(first_position + n % length);
  const float* sines = cosines + half;
  const int packs_per_head = half / kWidth;
  for (int p = static_cast<int>(threadIdx.x); p < heads * packs_per_head; p += kWarp) {
    const int head = p / packs_per_head;
    const int i = p % packs_per_head * kWidth;
    T* low = x.row(n) + head * 2 * half + i;
    T* high = low + half;
    Pack<kWidth> a = load<kWidth>(low);
    Pack<kWidth> b = load<kWidth>(high);
    const Pack<kWidth> cosine = load<kWidth>(cosines + i);
    const Pack<kWidth> sine = load<kWidth>(sines + i);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float s = direction * sine.v[k];
      const float turned = a.v[k] * cosine.v[k] - b.v[k] * s;
      b.v[k] = b.v[k] * cosine.v[k] + a.v[k] * s;
      a.v[k] = turned;
    }
    store(low, a);
    store(high, b);
  }
}

}  // namespace

template <typename T>
void rope(const Context& context, const MatrixOf<T>& x, const Matrix& table, int64_t length,
          int64_t first_position, Rotation rotation) {
  const int half = static_cast<int>(table.columns / 2);
  const int heads = static_cast<int>(x.columns / table.columns);
  const bool packs = packs_fit_all(x, table) && half % kWidest == 0;
  launch(packs ? rope_kernel<kWidest, T> : rope_kernel<1, T>, row_grid(x.rows), row_block(),
         context.stream(), x, table, heads, half, length, first_position,
         rotation == Rotation::kForward ? 1.0F : -1.0F);
}
template void rope(const Context&, const Matrix&, const Matrix&, int64_t, int64_t, Rotation);
template void rope(const Context&, const Bfloat16Matrix&, const Matrix&, int64_t, int64_t,
                   Rotation);

}  // namespace lab::cuda
