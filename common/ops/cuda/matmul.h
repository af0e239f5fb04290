// Matrix products on the GPU.
#pragma once

#include "common/cuda/context.h"
#include "common/ops/cuda/matrix.h"

namespace lab::cuda {

enum class Transpose { kNo, kYes };

/// c = op(a) op(b) + beta c, in float32 throughout.
void matmul(const Context& context, Transpose transpose_a, Transpose transpose_b, const Matrix& a,
            const Matrix& b, float beta, const Matrix& c);

}  // namespace lab::cuda
