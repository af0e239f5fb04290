// For benchmarks: a matrix product alone, without the rounding of its operands.
#pragma once

#include <functional>

#include "common/tensor/tensor.h"

namespace lab::cuda {

/// Rounds x and weight, which are on the GPU, to its precision. Each call of the returned function
/// launches y = x weight^T with the rounded operands, as linear_forward does. Throws Error in a
/// build without CUDA.
std::function<void()> product_of_rounded(const Tensor& x, const Tensor& weight, const Tensor& y);

}  // namespace lab::cuda
