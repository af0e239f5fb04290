// For benchmarks: a matrix product by itself, without the rounding of its operands.
#pragma once

#include <functional>

#include "common/tensor/tensor.h"

namespace lab::cuda {

/// Rounds x and weight, which lie on the GPU, as its precision says. Each call of what it returns
/// asks for y = x weight^T, as linear_forward does, of the rounded ones. Throws Error in a build
/// without CUDA.
std::function<void()> product_of_rounded(const Tensor& x, const Tensor& weight, const Tensor& y);

}  // namespace lab::cuda
