// Causal attention on the GPU: see ops.h for its meaning.
#pragma once

#include "common/cuda/context.h"
#include "common/ops/cuda/matrix.h"
#include "common/ops/ops.h"

namespace lab::cuda {

/// The widest head that the kernels take.
constexpr int64_t kWidestHead = 128;

/// Throws Error for heads wider than kWidestHead.
void attention_forward(const Context& context, const AttentionShape& shape, const Matrix& q,
                       const Matrix& k, const Matrix& v, const Matrix& y, float* logsumexp);
void attention_backward(const Context& context, const AttentionShape& shape, const Matrix& dy,
                        const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& y,
                        const float* logsumexp, const Matrix& dq, const Matrix& dk,
                        const Matrix& dv);

}  // namespace lab::cuda
