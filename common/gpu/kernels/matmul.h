// Matrix products on the GPU.
#pragma once

#include "common/gpu/cuda/context.h"
#include "common/tensor/tensor.h"

namespace lab::cuda {

enum class Transpose { kNo, kYes };

/// c = op(a) op(b) + beta c. Each tensor may hold float32 or bfloat16; sums are formed in float32.
/// The operands are rounded according to the context's precision, and to bfloat16 if one of them
/// has that type.
void matmul(const Context& context, Transpose transpose_a, Transpose transpose_b, const Tensor& a,
            const Tensor& b, float beta, const Tensor& c);

}  // namespace lab::cuda
