// Matrix products by cuBLAS.
//
// cuBLAS stores matrices by columns, as Fortran does; ours are stored by rows. The same memory read
// by columns is the transposed matrix, so instead of C = A B we compute C^T = B^T A^T: the operands
// change places, and each is already transposed.
#include <climits>
#include <memory>

#include "common/error.h"
#include "common/gpu/cuda/check.h"
#include "common/gpu/kernels/bfloat16.h"
#include "common/gpu/kernels/elementwise.h"
#include "common/gpu/kernels/matmul.h"
#include "common/gpu/kernels/rounded_product.h"

namespace lab::cuda {
namespace {

cublasOperation_t operation(Transpose transpose) {
  return transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

int as_int(int64_t size) {
  require(size <= INT_MAX, "matrix product: {} rows or columns are more than cuBLAS takes", size);
  return static_cast<int>(size);
}

/// cuBLAS's name for the type of elements.
template <typename T>
constexpr cudaDataType kType = CUDA_R_32F;
template <>
constexpr cudaDataType kType<__nv_bfloat16> = CUDA_R_16BF;

/// Sums are float32 whatever the types.
template <typename T, typename Sum>
void multiply(const Context& context, Transpose transpose_a, Transpose transpose_b,
              const MatrixOf<T>& a, const MatrixOf<T>& b, float beta, const MatrixOf<Sum>& c) {
  const int64_t inner = transpose_a == Transpose::kYes ? a.rows : a.columns;
  const float alpha = 1.0F;
  check(cublasGemmEx(context.blas(), operation(transpose_b), operation(transpose_a),
                     as_int(c.columns), as_int(c.rows), as_int(inner), &alpha,  //
                     b.data, kType<T>, as_int(b.stride),                        //
                     a.data, kType<T>, as_int(a.stride), &beta,                 //
                     c.data, kType<Sum>, as_int(c.stride),                      //
                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx", "matrix product [{} x {}] x [{} x {}]", c.rows, inner, inner, c.columns);
}

bool is_bfloat16(const Tensor& t) { return t.type() == ElementType::kBfloat16; }

}  // namespace

void matmul(const Context& context, Transpose transpose_a, Transpose transpose_b, const Tensor& a,
            const Tensor& b, float beta, const Tensor& c) {
  const int64_t inner = transpose_a == Transpose::kYes ? a.row_count() : a.size(-1);
  if (c.numel() == 0) return;
  if (inner == 0) {  // an empty sum
    if (beta == 0.0F) fill(context, matrix(c), 0.0F);
  } else if (context.precision() == Precision::kBfloat16 || is_bfloat16(a) || is_bfloat16(b) ||
             is_bfloat16(c)) {
    const Bfloat16Operand left(context, a);
    const Bfloat16Operand right(context, b);
    with_type_of(c, [&]<typename Sum>() {
      multiply(context, transpose_a, transpose_b, left.matrix(), right.matrix(), beta,
               matrix<Sum>(c));
    });
  } else {
    multiply(context, transpose_a, transpose_b, matrix(a), matrix(b), beta, matrix(c));
  }
}

std::function<void()> product_of_rounded(const Tensor& x, const Tensor& weight, const Tensor& y) {
  const Context& context = current_context();
  context.activate();
  const auto product_of = [&context, y](const auto& a, const auto& b) {
    multiply(context, Transpose::kNo, Transpose::kYes, a, b, 0.0F, matrix(y));
  };
  if (context.precision() != Precision::kBfloat16)  // cuBLAS rounds to TF32 itself, on the fly
    return [=] { product_of(matrix(x), matrix(weight)); };
  const auto rounded_x = std::make_shared<Bfloat16Operand>(context, x);
  const auto rounded_weight = std::make_shared<Bfloat16Operand>(context, weight);
  return [=] { product_of(rounded_x->matrix(), rounded_weight->matrix()); };
}

}  // namespace lab::cuda
