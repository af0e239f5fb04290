#include "common/gpu/cuda/dynamic_shared.h"
#include "correct_kernels.h"
#include "launch.h"
#include "pair.h"

namespace lab::emulation {
namespace {

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0U, value, offset);
  return value;
}

__device__ float block_sum(float value) {
  __shared__ float parts[32];
  value = warp_sum(value);
  __syncthreads();  // a former call may still be read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  return warp_sum(lane < blockDim.x / 32 ? parts[lane] : 0.0F);
}

__global__ void row_sums_kernel(const float* __restrict__ x, float* __restrict__ y, int width) {
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x)) {
    sum += x[static_cast<size_t>(blockIdx.x) * static_cast<size_t>(width) + static_cast<size_t>(i)];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

__global__ void transpose_kernel(const float* x, float* y, unsigned rows, unsigned columns) {
  __shared__ float tile[16][17];
  const unsigned row = blockIdx.y * 16 + threadIdx.y;
  const unsigned column = blockIdx.x * 16 + threadIdx.x;
  if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
  __syncthreads();
  const unsigned y_row = blockIdx.x * 16 + threadIdx.y;
  const unsigned y_column = blockIdx.y * 16 + threadIdx.x;
  if (y_row < columns && y_column < rows)
    y[y_row * rows + y_column] = tile[threadIdx.x][threadIdx.y];
}

__global__ void histogram_kernel(const int* values, int* counts, int n) {
  __shared__ int local[16];
  if (threadIdx.x < 16) local[threadIdx.x] = 0;
  __syncthreads();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) atomicAdd(&local[values[i]], 1);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
}

__global__ void prefix_sums_kernel(const float* x, float* y, unsigned n) {
  float* sums = cuda::dynamic_shared<float>();
  const unsigned i = threadIdx.x;
  sums[i] = x[i];
  __syncthreads();
  for (unsigned offset = 1; offset < n; offset *= 2) {
    const float before = i >= offset ? sums[i - offset] : 0.0F;
    __syncthreads();
    sums[i] += before;
    __syncthreads();
  }
  y[i] = sums[i];
}

__global__ void swap_neighbours_kernel(const float* x, float* y) {
  __shared__ float values[64];
  const unsigned i = threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    values[i] = x[i];
    __syncwarp();
    y[i] = values[i ^ 1U];
    __syncwarp();
  }
}

__global__ void warp_results_kernel(int* y) {
  const int lane = static_cast<int>(threadIdx.x);
  int* mine = y + 8 * lane;
  mine[0] = __shfl_sync(~0U, lane * 10, 7);
  mine[1] = __shfl_up_sync(~0U, lane, 3);
  mine[2] = __shfl_down_sync(~0U, lane, 3);
  mine[3] = __shfl_xor_sync(~0U, lane, 5, 8);
  mine[4] = static_cast<int>(__ballot_sync(~0U, lane % 3 == 0));
  mine[5] = __any_sync(~0U, lane == 9) * 2 + __all_sync(~0U, lane < 31);
  mine[6] = __shfl_sync(~0U, lane, lane + 1, 4);
  // Two halves that do different things.
  if (lane < 16) {
    mine[7] = __shfl_down_sync(0xffffU, lane, 1, 16);
  } else {
    mine[7] = __shfl_xor_sync(0xffff0000U, lane, 1);
  }
}

__global__ void sum_by_last_block_kernel(const float* x, float* scratch, unsigned* counter,
                                         float* y, unsigned n) {
  __shared__ bool is_last;
  float sum = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    sum += x[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    scratch[blockIdx.x] = sum;
    __threadfence();
    is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum += scratch[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *y = sum;
}

__global__ void to_bfloat16_kernel(const float* x, __nv_bfloat16* y, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = __float2bfloat16(x[i]);
}

__global__ void affine_kernel(Affine task, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (4 * i >= n) return;
  float4 v = reinterpret_cast<const float4*>(task.x)[i];
  v.x = task.scale * v.x + task.shift;
  v.y = task.scale * v.y + task.shift;
  v.z = task.scale * v.z + task.shift;
  v.w = task.scale * v.w + task.shift;
  reinterpret_cast<float4*>(task.y)[i] = v;
}

__global__ void signs_kernel(const float* x, int* y) {
  const int positive = x[threadIdx.x] > 0;
  const int count = __syncthreads_count(positive);
  const int any = __syncthreads_or(positive);
  const int all = __syncthreads_and(positive);
  if (threadIdx.x == 0) y[0] = count, y[1] = any, y[2] = all;
}

/// A function returns a Pair in a register, and this in memory.
struct Five {
  float values[5];
};
__device__ Five twice(Pair a) {
  const Pair sum = added(a, a);
  return {{sum.sum, expf(sum.sum), 0, expf(sum.count), sum.count}};
}

__global__ void struct_sums_kernel(const float* x, float* y) {
  __shared__ Pair parts[64];
  __shared__ Five result;
  parts[threadIdx.x] = added({x[threadIdx.x], 0.25F}, {0, 0});
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned i = 1; i < 64; ++i) parts[0] = added(parts[0], parts[i]);
    result = twice(parts[0]);
  }
  __syncthreads();
  const Five all = result;
  y[threadIdx.x] = all.values[0] + all.values[4];
}

__global__ void constants_kernel(float* y) {
  static constexpr float kTable[] = {1.5F, 2.5F, -3.0F, 4.0F, 0.25F};
  __shared__ __nv_bfloat16 stored[2][5];
  const unsigned i = threadIdx.x;
  stored[1][i] = __float2bfloat16(kTable[i]);
  __syncthreads();
  y[i] = __bfloat162float(stored[1][(i + 1) % 5]);
}

}  // namespace

void row_sums(const float* x, float* y, int rows, int width, int threads) {
  start(dim3(static_cast<unsigned>(rows)), static_cast<unsigned>(threads), 0, row_sums_kernel, x, y,
        width);
}

void transpose(const float* x, float* y, int rows, int columns) {
  const auto r = static_cast<unsigned>(rows);
  const auto c = static_cast<unsigned>(columns);
  start(dim3((c + 15) / 16, (r + 15) / 16), dim3(16, 16), 0, transpose_kernel, x, y, r, c);
}

void histogram(const int* values, int* counts, int n) {
  start((static_cast<unsigned>(n) + 63) / 64, 64, 0, histogram_kernel, values, counts, n);
}

void prefix_sums(const float* x, float* y, int n) {
  const auto count = static_cast<unsigned>(n);
  start(1, count, count * sizeof(float), prefix_sums_kernel, x, y, count);
}

void swap_neighbours(const float* x, float* y) { start(1, 64, 0, swap_neighbours_kernel, x, y); }

void warp_results(int* y) { start(1, 32, 0, warp_results_kernel, y); }

void sum_by_last_block(const float* x, float* scratch, unsigned* counter, float* y, int n,
                       int blocks) {
  start(static_cast<unsigned>(blocks), 64, 0, sum_by_last_block_kernel, x, scratch, counter, y,
        static_cast<unsigned>(n));
}

void to_bfloat16(const float* x, __nv_bfloat16* y, int n) {
  start((static_cast<unsigned>(n) + 31) / 32, 32, 0, to_bfloat16_kernel, x, y, n);
}

void affine(Affine task, int n) {
  start((static_cast<unsigned>(n) / 4 + 31) / 32, 32, 0, affine_kernel, task, n);
}

void signs(const float* x, int* y, int n) {
  start(1, static_cast<unsigned>(n), 0, signs_kernel, x, y);
}

void struct_sums(const float* x, float* y) { start(1, 64, 0, struct_sums_kernel, x, y); }

void constants(float* y) { start(1, 5, 0, constants_kernel, y); }

}  // namespace lab::emulation
