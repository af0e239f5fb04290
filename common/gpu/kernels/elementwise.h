// Element-wise operations on the GPU: see ops.h for what they compute.
#pragma once

#include <span>
#include <vector>

#include "common/gpu/cuda/context.h"
#include "common/gpu/kernels/matrix.h"

namespace lab::cuda {

void fill(const Context& context, const Matrix& y, float value);
/// y = x in another type of element. bfloat16 has float's exponent and 7 bits of mantissa; numbers
/// are rounded to nearest.
void convert(const Context& context, const Matrix& x, const Bfloat16Matrix& y);
void convert(const Context& context, const Bfloat16Matrix& x, const Matrix& y);
void scale(const Context& context, float* x, int64_t count, float factor);
void add(const Context& context, const Matrix& x, const Matrix& y);
void add_scaled(const Context& context, const float* x, float factor, float* y, int64_t count);
/// Waits for the GPU, once.
std::vector<double> sums_of_squares(const Context& context, std::span<const Tensor> tensors);

}  // namespace lab::cuda
