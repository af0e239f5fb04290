// Matrices in GPU memory, and how kernels read and write them.
//
// Elements are read as float and written from float, through the functions here alone: another type
// of element needs another pair of them, and no change to a kernel's arithmetic. Kernels move
// kWidth neighbours at a time (a pack): 4 floats are one 16-byte access, which is what memory likes
// best; where rows do not start at multiples of 16 bytes, the same kernel runs with packs of 1.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/tensor/tensor.h"

namespace lab::cuda {

/// Rows of `columns` elements, `stride` elements apart.
template <typename T>
struct MatrixOf {
  T* data;
  int64_t rows;
  int64_t columns;
  int64_t stride;

  __host__ __device__ T* row(int64_t r) const { return data + r * stride; }
};
using Matrix = MatrixOf<float>;

inline Matrix matrix(const Tensor& t) {
  return {t.data(), t.row_count(), t.size(-1), t.row_stride()};
}

/// kWidth neighbours in registers.
template <int kWidth>
struct alignas(kWidth * sizeof(float)) Pack {
  float v[kWidth];
};

template <int kWidth>
__device__ inline Pack<kWidth> load(const float* from) {
  return *reinterpret_cast<const Pack<kWidth>*>(from);
}
template <int kWidth>
__device__ inline void store(float* to, const Pack<kWidth>& pack) {
  *reinterpret_cast<Pack<kWidth>*>(to) = pack;
}

constexpr int kWidest = 4;

/// Whether all accesses to these rows can be packs of kWidest.
inline bool packs_fit(const float* data, int64_t columns, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % (kWidest * sizeof(float)) == 0 &&
         columns % kWidest == 0 && stride % kWidest == 0;
}
inline bool packs_fit(const Matrix& m) { return packs_fit(m.data, m.columns, m.stride); }

template <typename... Matrices>
bool packs_fit_all(const Matrices&... matrices) {
  return (packs_fit(matrices) && ...);
}

}  // namespace lab::cuda
