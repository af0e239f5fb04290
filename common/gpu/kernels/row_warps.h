// One warp per row: the layout of most kernels here. A block is 8 warps, so 8 rows; the lanes of a
// warp walk along their row together, so every access of the warp is one contiguous piece of
// memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/gpu/cuda/launch.h"

namespace lab::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;
constexpr int kRowsPerBlock = 8;

/// The block of a kernel with one warp per row: x is the lane, y the warp.
inline dim3 row_block() { return dim3(kWarp, kRowsPerBlock); }
inline dim3 row_grid(int64_t rows) { return dim3(blocks_for(rows, kRowsPerBlock)); }

/// The row of the calling warp; may be beyond the last one.
__device__ inline int64_t row_of_warp() {
  return static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.y;
}

/// The sum over all lanes, in every lane. Pairs, then pairs of pairs: always in the same order.
template <typename T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

}  // namespace lab::cuda
