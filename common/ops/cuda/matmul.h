// Matrix products on the GPU.
#pragma once

#include "common/cuda/context.h"
#include "common/ops/cuda/matrix.h"

namespace lab::cuda {

enum class Transpose { kNo, kYes };

/// c = op(a) op(b) + beta c. Memory and sums are float32; the operands are rounded as the context's
/// precision says.
void matmul(const Context& context, Transpose transpose_a, Transpose transpose_b, const Matrix& a,
            const Matrix& b, float beta, const Matrix& c);

}  // namespace lab::cuda
