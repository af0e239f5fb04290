// What all attention kernels share: where a head lies, how wide it is, and powers of two.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ops/cuda/matrix.h"
#include "common/tensor/error.h"

namespace lab::cuda {

/// One head of one sequence: `length` rows of `dim` elements, `stride` apart.
template <typename T>
struct HeadOf {
  T* data;
  int64_t length;
  int64_t stride;
  int dim;
  bool packs;  // rows can be read and written 16 bytes at a time

  __device__ T* row(int64_t r) const { return data + r * stride; }
};

template <typename T>
__device__ HeadOf<T> head_of(const MatrixOf<T>& m, int64_t sequence, int64_t head, int64_t length,
                             int64_t dim, bool packs) {
  return {m.row(sequence * length) + head * dim, length, m.stride, static_cast<int>(dim), packs};
}

/// e^x = 2^(x log2 e): the hardware has powers of two only.
constexpr float kLog2e = 1.44269504088896341F;
constexpr float kLn2 = 0.69314718055994531F;

/// Calls run.operator()<D>() with the smallest D that holds the head and for which there are
/// kernels.
template <typename Run>
void with_head_dim(int64_t head_dim, const Run& run) {
  if (head_dim <= 16)
    run.template operator()<16>();
  else if (head_dim <= 32)
    run.template operator()<32>();
  else if (head_dim <= 48)
    run.template operator()<48>();
  else if (head_dim <= 64)
    run.template operator()<64>();
  else if (head_dim <= 128)
    run.template operator()<128>();
  else
    fail("attention on the GPU takes heads of at most 128 elements, not {}: use more heads",
         head_dim);
}

}  // namespace lab::cuda
