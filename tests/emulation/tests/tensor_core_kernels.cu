#include "common/gpu/cuda/dynamic_shared.h"
#include "common/gpu/kernels/tensor_core.h"
#include "launch.h"
#include "tensor_core_kernels.h"

namespace lab::emulation {
namespace {

using cuda::load_matrices;
using cuda::load_matrices_transposed;
using cuda::mma_16x8x16;

constexpr size_t kBytes = 256 * sizeof(__nv_bfloat16);

__device__ uint32_t pair(__nv_bfloat16 low, __nv_bfloat16 high) {
  return __bfloat16_as_ushort(low) | uint32_t{__bfloat16_as_ushort(high)} << 16;
}

__device__ __nv_bfloat16 low(uint32_t pair) {
  return __ushort_as_bfloat16(static_cast<unsigned short>(pair));
}
__device__ __nv_bfloat16 high(uint32_t pair) {
  return __ushort_as_bfloat16(static_cast<unsigned short>(pair >> 16));
}

/// The PTX ISA's formulas: row and column of the i-th element that a lane holds of A, B and D.
__device__ int row_of_a(int i) {
  return static_cast<int>(threadIdx.x >> 2) + ((0 <= i && i < 2) || (4 <= i && i < 6) ? 0 : 8);
}
__device__ int column_of_a(int i) {
  return static_cast<int>(threadIdx.x % 4) * 2 + (i & 1) + (i < 4 ? 0 : 8);
}
__device__ int row_of_b(int i) {
  return static_cast<int>(threadIdx.x % 4) * 2 + (i & 1) + (i < 2 ? 0 : 8);
}
__device__ int row_of_d(int i) { return static_cast<int>(threadIdx.x >> 2) + (i < 2 ? 0 : 8); }
__device__ int column_of_d(int i) { return static_cast<int>(threadIdx.x % 4) * 2 + (i & 1); }

__device__ void add_to(float* d, const uint32_t (&a)[4], uint32_t b_upper, uint32_t b_lower) {
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = d[row_of_d(i) * 8 + column_of_d(i)];
  mma_16x8x16(sums, a, b_upper, b_lower);
  for (int i = 0; i < 4; ++i) d[row_of_d(i) * 8 + column_of_d(i)] = sums[i];
}

__global__ void multiply_blocks_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d) {
  const auto of_a = [&](int i) { return a[row_of_a(i) * 16 + column_of_a(i)]; };
  const auto of_b = [&](int i) { return b[row_of_b(i) * 8 + static_cast<int>(threadIdx.x >> 2)]; };
  uint32_t left[4];
  for (int r = 0; r < 4; ++r) left[r] = pair(of_a(2 * r), of_a(2 * r + 1));
  add_to(d, left, pair(of_b(0), of_b(1)), pair(of_b(2), of_b(3)));
}

/// Copies x into dynamic shared memory.
__device__ __nv_bfloat16* shared_copy(const __nv_bfloat16* x, unsigned count) {
  __nv_bfloat16* copy = cuda::dynamic_shared<__nv_bfloat16>();
  for (unsigned i = threadIdx.x; i < count; i += 32) copy[i] = x[i];
  __syncwarp();
  return copy;
}

__global__ void multiply_shared_blocks_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                              float* d, bool transposed) {
  __nv_bfloat16* tile = shared_copy(a, 256);
  uint32_t left[4];
  load_matrices(left, tile + threadIdx.x % 16 * 16 + threadIdx.x / 16 * 8);
  __syncwarp();
  shared_copy(b, 128);
  uint32_t right[4];  // only two matrices: the others are these once more
  if (transposed) {
    load_matrices(right, tile + threadIdx.x % 8 * 16 + threadIdx.x / 8 % 2 * 8);
  } else {
    load_matrices_transposed(right, tile + threadIdx.x % 16 * 8);
  }
  add_to(d, left, right[0], right[1]);
}

__global__ void load_four_kernel(const __nv_bfloat16* x, __nv_bfloat16* y, bool transposed) {
  const __nv_bfloat16* row = shared_copy(x, 256) + 8 * threadIdx.x;
  uint32_t matrices[4];
  if (transposed) {
    load_matrices_transposed(matrices, row);
  } else {
    load_matrices(matrices, row);
  }
  for (unsigned i = 0; i < 4; ++i) {
    y[8 * threadIdx.x + 2 * i] = low(matrices[i]);
    y[8 * threadIdx.x + 2 * i + 1] = high(matrices[i]);
  }
}

__global__ void lane_never_multiplies_kernel() {
  float d[4] = {};
  const uint32_t a[4] = {};
  if (threadIdx.x != 5) mma_16x8x16(d, a, 0, 0);
  __syncthreads();
}

__global__ void multiplies_at_two_places_kernel() {
  float d[4] = {};
  const uint32_t a[4] = {};
  if (threadIdx.x % 2 == 0) {
    mma_16x8x16(d, a, 0, 0);
  } else {
    mma_16x8x16(d, a, 0, 0);
  }
}

__global__ void load_meets_transposed_load_kernel(const __nv_bfloat16* x) {
  const __nv_bfloat16* row = shared_copy(x, 256) + 8 * threadIdx.x;
  uint32_t matrices[4];
  if (threadIdx.x == 3) {
    load_matrices_transposed(matrices, row);
  } else {
    load_matrices(matrices, row);
  }
}

__global__ void row_at_kernel(const __nv_bfloat16* x, unsigned written, unsigned gap, int first) {
  const __nv_bfloat16* tile = shared_copy(x, written);
  uint32_t matrices[4];
  load_matrices(matrices, tile + first + static_cast<int>(gap * threadIdx.x));
}

__global__ void row_in_device_memory_kernel(const __nv_bfloat16* x) {
  uint32_t matrices[4];
  load_matrices(matrices, x + 8 * threadIdx.x);
}

__global__ void row_written_by_other_lane_kernel(const __nv_bfloat16* x) {
  __nv_bfloat16* tile = cuda::dynamic_shared<__nv_bfloat16>();
  for (unsigned i = threadIdx.x; i < 256; i += 32) tile[i] = x[i];
  uint32_t matrices[4];
  load_matrices(matrices, tile + 8 * threadIdx.x);
}

__global__ void row_written_too_early_kernel(const __nv_bfloat16* x) {
  __nv_bfloat16* tile = shared_copy(x, 256);
  uint32_t matrices[4];
  load_matrices(matrices, tile + 8 * threadIdx.x);
  for (unsigned i = threadIdx.x; i < 256; i += 32) tile[i] = x[i];
}

}  // namespace

void multiply_blocks(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d) {
  start(1, 32, 0, multiply_blocks_kernel, a, b, d);
}
void multiply_shared_blocks(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d,
                            bool transposed) {
  start(1, 32, kBytes, multiply_shared_blocks_kernel, a, b, d, transposed);
}
void load_four(const __nv_bfloat16* x, __nv_bfloat16* y, bool transposed) {
  start(1, 32, kBytes, load_four_kernel, x, y, transposed);
}

void lane_never_multiplies() { start(1, 32, 0, lane_never_multiplies_kernel); }
void multiplies_at_two_places() { start(1, 32, 0, multiplies_at_two_places_kernel); }
void multiplies_in_part_of_a_warp() { start(1, 20, 0, multiplies_at_two_places_kernel); }
void load_meets_transposed_load(const __nv_bfloat16* x) {
  start(1, 32, kBytes, load_meets_transposed_load_kernel, x);
}
void row_is_not_aligned(const __nv_bfloat16* x) {
  start(1, 32, kBytes, row_at_kernel, x, 256, 7, 8);
}
void row_in_device_memory(const __nv_bfloat16* x) {
  start(1, 32, 0, row_in_device_memory_kernel, x);
}
void row_past_shared_memory(const __nv_bfloat16* x) {
  start(1, 32, kBytes, row_at_kernel, x, 256, 8, 8);
}
void row_never_written(const __nv_bfloat16* x) {
  start(1, 32, kBytes, row_at_kernel, x, 255, 8, 0);
}
void row_written_by_other_lane(const __nv_bfloat16* x) {
  start(1, 32, kBytes, row_written_by_other_lane_kernel, x);
}
void row_written_too_early(const __nv_bfloat16* x) {
  start(1, 32, kBytes, row_written_too_early_kernel, x);
}

}  // namespace lab::emulation
