// The model's operations on the GPU, but for attention and products: see ops.h for their meaning.
#pragma once

#include <cstdint>

#include "common/cuda/context.h"
#include "common/ops/cuda/matrix.h"
#include "common/ops/ops.h"

namespace lab::cuda {

void embedding_forward(const Context& context, const int32_t* tokens, const Matrix& table,
                       const Matrix& y);
void embedding_backward(const Context& context, const int32_t* tokens, const Matrix& dy,
                        const Matrix& dtable);

void rmsnorm_forward(const Context& context, const Matrix& x, const float* weight, float epsilon,
                     const Matrix& y, float* inverse_rms);
void rmsnorm_apply(const Context& context, const Matrix& x, const float* weight,
                   const float* inverse_rms, const Matrix& y);
void rmsnorm_backward(const Context& context, const Matrix& dy, const Matrix& x,
                      const float* weight, const float* inverse_rms, const Matrix& dx,
                      float* dweight);

void rope(const Context& context, const Matrix& x, const Matrix& table, int64_t length,
          int64_t first_position, Rotation rotation);

void swiglu_forward(const Context& context, const Matrix& gate_up, const Matrix& y);
void swiglu_backward(const Context& context, const Matrix& gate_up, const Matrix& dy);

}  // namespace lab::cuda
