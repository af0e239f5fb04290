// The model's operations on the GPU, except for attention and products: see ops.h for what they
// compute.
#pragma once

#include <cstdint>

#include "common/gpu/cuda/context.h"
#include "common/gpu/kernels/matrix.h"
#include "common/ops/ops.h"

namespace lab::cuda {

void embedding_forward(const Context& context, const int32_t* tokens, const Matrix& table,
                       const Matrix& y);
void embedding_backward(const Context& context, const int32_t* tokens, const Matrix& dy,
                        const Matrix& dtable);

// T: float or __nv_bfloat16.

template <typename T>
void rmsnorm_forward(const Context& context, const Matrix& x, const float* weight, float epsilon,
                     const MatrixOf<T>& y, float* inverse_rms);
template <typename T>
void rmsnorm_apply(const Context& context, const Matrix& x, const float* weight,
                   const float* inverse_rms, const MatrixOf<T>& y);
template <typename T>
void rmsnorm_backward(const Context& context, const MatrixOf<T>& dy, const Matrix& x,
                      const float* weight, const float* inverse_rms, const Matrix& dx,
                      float* dweight);

template <typename T>
void rope(const Context& context, const MatrixOf<T>& x, const Matrix& table, int64_t length,
          int64_t first_position, Rotation rotation);

template <typename T>
void swiglu_forward(const Context& context, const MatrixOf<T>& gate_up, const MatrixOf<T>& y);
template <typename T>
void swiglu_backward(const Context& context, const MatrixOf<T>& gate_up, const MatrixOf<T>& dy);

}  // namespace lab::cuda
