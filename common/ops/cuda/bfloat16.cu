// Conversions between float and bfloat16: six bytes are moved per element.
//
// Contiguous memory: each thread has one pack; the thread at the end handles what is left of a pack
// element by element. Rows with gaps: one warp per row.
#include "common/ops/cuda/bfloat16.h"
#include "common/ops/cuda/row_warps.h"

namespace lab::cuda {
namespace {

/// Elements that 16 bytes hold: rows of a copy begin at multiples of that, as tensor cores like it.
constexpr int64_t kAligned = 8;

int64_t padded(int64_t columns) { return (columns + kAligned - 1) / kAligned * kAligned; }

constexpr int kThreads = 256;

template <int kWidth, typename From, typename To>
__global__ void convert_kernel(const From* from, To* to, int64_t count) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
  if (first + kWidth <= count) {
    store(to + first, load<kWidth>(from + first));
  } else {
    for (int64_t i = first; i < count; ++i) store(to + i, load<1>(from + i));
  }
}

template <int kWidth, typename From, typename To>
__global__ void convert_rows_kernel(MatrixOf<From> from, MatrixOf<To> to) {
  const int64_t n = row_of_warp();
  if (n >= from.rows) return;
  for (int64_t c = threadIdx.x * kWidth; c < from.columns; c += kWarp * kWidth)
    store(to.row(n) + c, load<kWidth>(from.row(n) + c));
}

template <typename From, typename To>
void convert(const Context& context, const MatrixOf<From>& from, const MatrixOf<To>& to) {
  const auto contiguous = [](const auto& m) { return m.stride == m.columns || m.rows <= 1; };
  if (contiguous(from) && contiguous(to)) {
    const int64_t count = from.rows * from.columns;
    const bool packs =
        packs_fit(from.data, kWidest, kWidest) && packs_fit(to.data, kWidest, kWidest);
    const auto kernel = packs ? convert_kernel<kWidest, From, To> : convert_kernel<1, From, To>;
    launch(kernel, blocks_for(count, kThreads * (packs ? kWidest : 1)), kThreads, context.stream(),
           from.data, to.data, count);
  } else {
    const auto kernel = packs_fit_all(from, to) ? convert_rows_kernel<kWidest, From, To>
                                                : convert_rows_kernel<1, From, To>;
    launch(kernel, row_grid(from.rows), row_block(), context.stream(), from, to);
  }
}

}  // namespace

void convert(const Context& context, const Tensor& from, const Tensor& to) {
  if (to.type() == ElementType::kBfloat16)
    convert(context, matrix(from), matrix<__nv_bfloat16>(to));
  else
    convert(context, matrix<__nv_bfloat16>(from), matrix(to));
}

Bfloat16Operand::Bfloat16Operand(const Context& context, const Tensor& tensor) {
  if (tensor.type() == ElementType::kBfloat16) {
    matrix_ = cuda::matrix<__nv_bfloat16>(tensor);
    return;
  }
  const Matrix from = cuda::matrix(tensor);
  const int64_t stride = padded(from.columns);
  copy_.emplace(context, static_cast<size_t>(from.rows * stride));
  matrix_ = {copy_->data(), from.rows, from.columns, stride};
  convert(context, from, matrix_);
}

}  // namespace lab::cuda
