// Matrices in GPU memory, and how kernels read and write them.
//
// Elements are float or bfloat16. Kernels read them as float and write them from float, only
// through the functions here, so that their arithmetic is the same for both (except on tensor
// cores, which take bfloat16 itself). They move kWidth adjacent elements at a time (a pack): 4
// floats are one 16-byte access, the fastest kind; if rows do not start at multiples of a pack, the
// same kernel runs with packs of 1.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/error.h"
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
using Bfloat16Matrix = MatrixOf<__nv_bfloat16>;

template <typename T>
constexpr ElementType kElementType = ElementType::kFloat32;
template <>
inline constexpr ElementType kElementType<__nv_bfloat16> = ElementType::kBfloat16;

/// Throws Error if the tensor's elements are not of type T.
template <typename T = float>
MatrixOf<T> matrix(const Tensor& t) {
  require(t.type() == kElementType<T>, "an operation on the GPU got a tensor of the wrong type");
  return {static_cast<T*>(t.address()), t.row_count(), t.size(-1), t.row_stride()};
}

/// Calls run.operator()<T>() with the type of the elements of `t`.
template <typename Run>
void with_type_of(const Tensor& t, const Run& run) {
  if (t.type() == ElementType::kBfloat16)
    run.template operator()<__nv_bfloat16>();
  else
    run.template operator()<float>();
}

/// kWidth neighbours in registers.
template <int kWidth>
struct alignas(kWidth * sizeof(float)) Pack {
  float v[kWidth];
};

/// The same in memory, as bfloat16.
template <int kWidth>
struct alignas(kWidth * sizeof(__nv_bfloat16)) Bfloat16Pack {
  __nv_bfloat16 v[kWidth];
};

template <int kWidth>
__device__ inline Pack<kWidth> load(const float* from) {
  return *reinterpret_cast<const Pack<kWidth>*>(from);
}
template <int kWidth>
__device__ inline Pack<kWidth> load(const __nv_bfloat16* from) {
  const auto rounded = *reinterpret_cast<const Bfloat16Pack<kWidth>*>(from);
  Pack<kWidth> pack;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) pack.v[i] = __bfloat162float(rounded.v[i]);
  return pack;
}
template <int kWidth>
__device__ inline void store(float* to, const Pack<kWidth>& pack) {
  *reinterpret_cast<Pack<kWidth>*>(to) = pack;
}
template <int kWidth>
__device__ inline void store(__nv_bfloat16* to, const Pack<kWidth>& pack) {
  Bfloat16Pack<kWidth> rounded;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) rounded.v[i] = __float2bfloat16(pack.v[i]);
  *reinterpret_cast<Bfloat16Pack<kWidth>*>(to) = rounded;
}

constexpr int kWidest = 4;

/// Whether all accesses to these rows can be packs of kWidest.
template <typename T>
bool packs_fit(const T* data, int64_t columns, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % (kWidest * sizeof(T)) == 0 && columns % kWidest == 0 &&
         stride % kWidest == 0;
}
template <typename T>
bool packs_fit(const MatrixOf<T>& m) {
  return packs_fit(m.data, m.columns, m.stride);
}

template <typename... Matrices>
bool packs_fit_all(const Matrices&... matrices) {
  return (packs_fit(matrices) && ...);
}

}  // namespace lab::cuda
