// See gemm.h. Both matrices are first packed as floats: the inner loop then runs along columns.
#include "gemm.h"

#include <vector>

#include "cuda_bf16.h"

namespace lab::emulation {
namespace {

float load(const void* data, cudaDataType type, int64_t at) {
  if (type == CUDA_R_16BF) return static_cast<const __nv_bfloat16*>(data)[at];
  return static_cast<const float*>(data)[at];
}

void store(void* data, cudaDataType type, int64_t at, float value) {
  if (type == CUDA_R_16BF) {
    static_cast<__nv_bfloat16*>(data)[at] = value;
  } else {
    static_cast<float*>(data)[at] = value;
  }
}

/// rows x columns floats, column after column.
std::vector<float> pack(const Matrix& matrix, int64_t rows, int64_t columns) {
  std::vector<float> result(static_cast<size_t>(rows * columns));
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = matrix.transposed ? j + i * matrix.leading : i + j * matrix.leading;
      result[static_cast<size_t>(i + j * rows)] = load(matrix.data, matrix.type, at);
    }
  }
  return result;
}

}  // namespace

size_t size_of(cudaDataType type) { return type == CUDA_R_16BF ? 2 : 4; }

void multiply(int64_t m, int64_t n, int64_t k, float alpha, const Matrix& a, const Matrix& b,
              float beta, void* c, cudaDataType c_type, int64_t c_leading) {
  const std::vector<float> left = pack(a, m, k);
  const std::vector<float> right = pack(b, k, n);
  std::vector<float> sums(static_cast<size_t>(m));
  for (int64_t j = 0; j < n; ++j) {
    sums.assign(sums.size(), 0.0F);
    for (int64_t p = 0; p < k; ++p) {
      const float factor = right[static_cast<size_t>(p + j * k)];
      const float* column = left.data() + p * m;
      for (int64_t i = 0; i < m; ++i) sums[static_cast<size_t>(i)] += column[i] * factor;
    }
    for (int64_t i = 0; i < m; ++i) {
      const int64_t at = i + j * c_leading;
      float value = alpha * sums[static_cast<size_t>(i)];
      if (beta != 0) value += beta * load(c, c_type, at);
      store(c, c_type, at, value);
    }
  }
}

}  // namespace lab::emulation
