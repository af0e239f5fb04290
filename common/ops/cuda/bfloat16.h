// Matrices rounded to bfloat16, for tensor cores.
#pragma once

#include <cuda_bf16.h>

#include "common/cuda/context.h"
#include "common/ops/cuda/matrix.h"

namespace lab::cuda {

/// A copy of a matrix in bfloat16, which has float's exponent and 7 bits of mantissa; rounded to
/// nearest. Its memory may be given back as soon as the product has been asked for.
class Bfloat16Copy {
 public:
  Bfloat16Copy(const Context& context, const Matrix& m);
  const MatrixOf<__nv_bfloat16>& matrix() const { return matrix_; }

 private:
  Scratch<__nv_bfloat16> memory_;
  MatrixOf<__nv_bfloat16> matrix_;
};

}  // namespace lab::cuda
