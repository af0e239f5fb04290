// What all attention kernels share: place and width of a head, factors, and delta.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "common/error.h"
#include "common/gpu/cuda/context.h"
#include "common/gpu/cuda/launch.h"
#include "common/gpu/kernels/matrix.h"
#include "common/gpu/kernels/row_warps.h"
#include "common/ops/ops.h"

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

/// The factor of the scores.
__device__ inline float score_factor(const AttentionShape& s) {
  return 1.0F / sqrtf(static_cast<float>(s.head_dim));
}

/// delta [batch, heads, queries], for the backward pass: the sum of dY Y over each row of a head.
/// One warp per query and head.
template <typename T>
__global__ void attention_delta_kernel(AttentionShape s, MatrixOf<T> dy, MatrixOf<T> y,
                                       float* delta) {
  const int64_t index = row_of_warp();
  if (index >= s.batch * s.heads * s.queries) return;
  const int64_t row = index / (s.heads * s.queries) * s.queries + index % s.queries;
  const int64_t column = index / s.queries % s.heads * s.head_dim;
  float sum = 0.0F;
  for (int64_t d = threadIdx.x; d < s.head_dim; d += kWarp)
    sum += load<1>(dy.row(row) + column + d).v[0] * load<1>(y.row(row) + column + d).v[0];
  sum = warp_sum(sum);
  if (threadIdx.x == 0) delta[index] = sum;
}

/// e^x = 2^(x log2 e): the hardware has only powers of two.
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

/// Calls run.operator()<D, kRows>() for `heads` heads of `rows` rows each, divided among blocks of
/// 64 rows; or of 32, if there would be so few blocks that much of the GPU is idle.
template <typename Run>
void with_block_rows(const Context& context, int64_t rows, int64_t heads, int64_t head_dim,
                     const Run& run) {
  const bool few = blocks_for(rows, 64) * heads < 2 * context.multiprocessors();
  with_head_dim(head_dim, [&]<int kHeadDim>() {
    if (few)
      run.template operator()<kHeadDim, 32>();
    else
      run.template operator()<kHeadDim, 64>();
  });
}

}  // namespace lab::cuda
