// Matrix products on the CPU, for the emulation of cuBLAS.
#pragma once

#include <cstddef>
#include <cstdint>

#include "library_types.h"

namespace lab::emulation {

/// A column-major matrix of float or bfloat16: element (i, j) at data[i + j * leading]; if
/// transposed, (i, j) means (j, i).
struct Matrix {
  const void* data;
  cudaDataType type;
  int64_t leading;
  bool transposed;
};

/// c = alpha * a * b + beta * c, where a is m x k, b is k x n. Each element is summed in float32,
/// in the order of k. With beta 0, c is not read.
void multiply(int64_t m, int64_t n, int64_t k, float alpha, const Matrix& a, const Matrix& b,
              float beta, void* c, cudaDataType c_type, int64_t c_leading);

size_t size_of(cudaDataType type);

}  // namespace lab::emulation
