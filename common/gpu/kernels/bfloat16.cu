#include "common/gpu/kernels/bfloat16.h"
#include "common/gpu/kernels/elementwise.h"

namespace lab::cuda {
namespace {

/// Elements in 16 bytes: rows of a copy begin at multiples of that, which suits tensor cores.
constexpr int64_t kAligned = 8;

int64_t padded(int64_t columns) { return (columns + kAligned - 1) / kAligned * kAligned; }

}  // namespace

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
