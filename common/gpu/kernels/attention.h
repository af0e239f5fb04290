// Causal attention on the GPU: see ops.h for what it computes.
#pragma once

#include "common/gpu/cuda/context.h"
#include "common/gpu/kernels/matrix.h"
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

/// The same on tensor cores, from compute capability 8.0 on. Sums are float32, and so is logsumexp;
/// probabilities and their gradients are rounded to bfloat16 where they are factors of a product.
/// Memory is moved 16 bytes at a time if head_dim and the strides are multiples of 8 and rows begin
/// at multiples of 16 bytes.
void attention_forward(const Context& context, const AttentionShape& shape, const Bfloat16Matrix& q,
                       const Bfloat16Matrix& k, const Bfloat16Matrix& v, const Bfloat16Matrix& y,
                       float* logsumexp);
void attention_backward(const Context& context, const AttentionShape& shape,
                        const Bfloat16Matrix& dy, const Bfloat16Matrix& q, const Bfloat16Matrix& k,
                        const Bfloat16Matrix& v, const Bfloat16Matrix& y, const float* logsumexp,
                        const Bfloat16Matrix& dq, const Bfloat16Matrix& dk,
                        const Bfloat16Matrix& dv);

}  // namespace lab::cuda
