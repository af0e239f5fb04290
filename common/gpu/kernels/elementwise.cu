// y = value, y = x, x *= factor, y += factor x. Each element is read and written once and hardly
// computed on: memory sets the pace.
//
// Contiguous memory: each thread has one pack, and adjacent threads have adjacent packs; the last
// thread handles an incomplete pack element by element. Rows with gaps: one warp per row.
#include "common/gpu/kernels/elementwise.h"
#include "common/gpu/kernels/row_warps.h"

namespace lab::cuda {
namespace {

constexpr int kThreads = 256;

/// What to do with one element of y, and with the corresponding x if there is one.
struct Fill {
  float value;
  __device__ float operator()(float /*y*/, float /*x*/) const { return value; }
};
struct Copy {
  __device__ float operator()(float /*y*/, float x) const { return x; }
};
struct Scale {
  float factor;
  __device__ float operator()(float y, float /*x*/) const { return y * factor; }
};
struct AddScaled {
  float factor;
  __device__ float operator()(float y, float x) const { return y + factor * x; }
};

template <int kWidth, bool kReadsX, bool kReadsY, typename Operation, typename X, typename Y>
__device__ void update(Operation operation, const X* x, Y* y) {
  Pack<kWidth> in{};
  Pack<kWidth> out{};
  if constexpr (kReadsX) in = load<kWidth>(x);
  if constexpr (kReadsY) out = load<kWidth>(y);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) out.v[i] = operation(out.v[i], in.v[i]);
  store(y, out);
}

template <int kWidth, bool kReadsX, bool kReadsY, typename Operation, typename X, typename Y>
__global__ void linear_kernel(Operation operation, const X* x, Y* y, int64_t count) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
  if (first + kWidth <= count) {
    update<kWidth, kReadsX, kReadsY>(operation, x + first, y + first);
  } else {
    for (int64_t i = first; i < count; ++i) update<1, kReadsX, kReadsY>(operation, x + i, y + i);
  }
}

template <int kWidth, bool kReadsX, bool kReadsY, typename Operation, typename X, typename Y>
__global__ void rows_kernel(Operation operation, MatrixOf<X> x, MatrixOf<Y> y) {
  const int64_t n = row_of_warp();
  if (n >= y.rows) return;
  for (int64_t c = threadIdx.x * kWidth; c < y.columns; c += kWarp * kWidth)
    update<kWidth, kReadsX, kReadsY>(operation, x.row(n) + c, y.row(n) + c);
}

template <bool kReadsX, bool kReadsY, typename Operation, typename X, typename Y>
void run_linear(const Context& context, Operation operation, const X* x, Y* y, int64_t count) {
  const bool packs = packs_fit(x, kWidest, kWidest) && packs_fit(y, kWidest, kWidest);
  const auto kernel = packs ? linear_kernel<kWidest, kReadsX, kReadsY, Operation, X, Y>
                            : linear_kernel<1, kReadsX, kReadsY, Operation, X, Y>;
  const int64_t per_block = kThreads * (packs ? kWidest : 1);
  launch(kernel, blocks_for(count, per_block), kThreads, context.stream(), operation, x, y, count);
}

template <bool kReadsX, bool kReadsY, typename Operation, typename X, typename Y>
void run_rows(const Context& context, Operation operation, const MatrixOf<X>& x,
              const MatrixOf<Y>& y) {
  const auto contiguous = [](const auto& m) { return m.stride == m.columns || m.rows <= 1; };
  if (contiguous(x) && contiguous(y)) {
    run_linear<kReadsX, kReadsY>(context, operation, x.data, y.data, y.rows * y.columns);
    return;
  }
  const auto kernel = packs_fit_all(x, y) ? rows_kernel<kWidest, kReadsX, kReadsY, Operation, X, Y>
                                          : rows_kernel<1, kReadsX, kReadsY, Operation, X, Y>;
  launch(kernel, row_grid(y.rows), row_block(), context.stream(), operation, x, y);
}

}  // namespace

void fill(const Context& context, const Matrix& y, float value) {
  run_rows<false, false>(context, Fill{value}, y, y);
}

void convert(const Context& context, const Matrix& x, const Bfloat16Matrix& y) {
  run_rows<true, false>(context, Copy{}, x, y);
}

void convert(const Context& context, const Bfloat16Matrix& x, const Matrix& y) {
  run_rows<true, false>(context, Copy{}, x, y);
}

void scale(const Context& context, float* x, int64_t count, float factor) {
  run_linear<false, true>(context, Scale{factor}, x, x, count);
}

void add(const Context& context, const Matrix& x, const Matrix& y) {
  run_rows<true, true>(context, AddScaled{1.0F}, x, y);
}

void add_scaled(const Context& context, const float* x, float factor, float* y, int64_t count) {
  run_linear<true, true>(context, AddScaled{factor}, x, y, count);
}

}  // namespace lab::cuda
