#include "common/gpu/cuda/dynamic_shared.h"
#include "launch.h"
#include "pair.h"
#include "wrong_kernels.h"

namespace lab::emulation {
namespace {

__global__ void barrier_in_a_branch_kernel() {
  if (threadIdx.x < 20) __syncthreads();
}

__global__ void leaves_before_the_barrier_kernel(unsigned n) {
  if (threadIdx.x >= n) return;
  __syncthreads();
}

__global__ void two_barriers_kernel() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void lane_never_shuffles_kernel() {
  if (threadIdx.x != 5) __shfl_xor_sync(~0U, 1.0F, 1);
  __syncthreads();
}

__global__ void lane_left_before_shuffle_kernel() {
  if (threadIdx.x >= 30) return;
  __shfl_xor_sync(~0U, 1.0F, 1);
}

__global__ void mask_without_the_caller_kernel() { __shfl_xor_sync(0xffffU, 1.0F, 1); }

__global__ void reads_lane_outside_the_mask_kernel() {
  if (threadIdx.x < 16) __shfl_down_sync(0xffffU, 1.0F, 8);
}

__global__ void mask_beyond_the_block_kernel() { __shfl_xor_sync(~0U, 1.0F, 1); }

__global__ void shuffle_meets_vote_kernel() {
  if (threadIdx.x % 2 == 0) {
    __shfl_xor_sync(~0U, 1.0F, 1);
  } else {
    __any_sync(~0U, 1);
  }
}

__global__ void width_is_no_power_of_two_kernel() { __shfl_xor_sync(~0U, 1.0F, 1, 12); }

__global__ void no_barrier_after_writing_kernel(const float* x, float* y) {
  __shared__ float part[64];
  part[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = part[63 - threadIdx.x];
}

__global__ void no_barrier_before_writing_kernel(const float* x, float* y) {
  __shared__ float part[64];
  for (unsigned round = 0; round < 2; ++round) {
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = part[63 - threadIdx.x];
  }
}

__global__ void shuffle_instead_of_syncwarp_kernel(const float* x, float* y) {
  __shared__ float part[32];
  part[threadIdx.x] = x[threadIdx.x];
  __shfl_xor_sync(~0U, 1.0F, 1);
  y[threadIdx.x] = part[threadIdx.x ^ 1U];
}

__global__ void half_a_syncwarp_kernel(const float* x, float* y) {
  __shared__ float part[32];
  part[threadIdx.x] = x[threadIdx.x];
  __syncwarp(threadIdx.x < 16 ? 0xffffU : 0xffff0000U);
  y[threadIdx.x] = part[threadIdx.x ^ 16U];
}

__global__ void all_write_one_word_kernel(float* y) { y[3] = static_cast<float>(threadIdx.x); }

__global__ void atomic_and_plain_kernel(int* y) {
  if (threadIdx.x == 40) {
    y[0] = 1;
  } else {
    atomicAdd(&y[0], 1);
  }
}

__global__ void blocks_write_one_word_kernel(float* y) {
  if (threadIdx.x == 0) y[0] = static_cast<float>(blockIdx.x);
}

__global__ void block_reads_another_blocks_word_kernel(float* y) {
  y[blockIdx.x] = 1;
  if (blockIdx.x > 0) y[blockIdx.x] = y[blockIdx.x - 1];
}

__global__ void races_on_bfloat16_kernel(const __nv_bfloat16* x, __nv_bfloat16* y) {
  __shared__ __nv_bfloat16 part[64];
  part[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = part[(threadIdx.x + 2) % 64];
}

__global__ void races_on_returned_struct_kernel(const float* x, float* y) {
  __shared__ Pair part[64];
  part[threadIdx.x] = added({x[threadIdx.x], 1}, {0, 0});
  y[threadIdx.x] = part[63 - threadIdx.x].sum;
}

__global__ void races_on_given_struct_kernel(const float* x, float* y) {
  __shared__ Pair part[64];
  part[threadIdx.x].sum = x[threadIdx.x];
  part[threadIdx.x].count = 1;
  y[threadIdx.x] = added(part[threadIdx.x], part[63 - threadIdx.x]).sum;
}

__global__ void past_static_array_kernel(float* y, int index) {
  __shared__ float first[16];
  __shared__ float second[16];
  first[threadIdx.x] = second[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x == 9) first[index] = 1;
  __syncthreads();
  y[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}

template <typename T>
__global__ void past_array_of_template_kernel(T* y, int index) {
  __shared__ T before[16];
  __shared__ T array[16];
  before[threadIdx.x] = 0;
  array[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x == 9) y[0] = before[threadIdx.x] + array[index];
}

__global__ void past_dynamic_array_kernel(float* y, int index) {
  float* memory = cuda::dynamic_shared<float>();
  memory[threadIdx.x] = 1;
  if (threadIdx.x == 2) memory[index] = 2;
  y[threadIdx.x] = memory[threadIdx.x];
}

__global__ void copies_kernel(const float* x, float* y, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i];
}

struct alignas(16) FourFloats {
  float v[4];
};

__global__ void copies_fours_kernel(const FourFloats* x, FourFloats* y) { *y = *x; }

__global__ void writes_at_kernel(float* y, int index) { y[index] = 1; }

__global__ void reads_unwritten_shared_kernel(float* y) {
  __shared__ float sums[32];
  if (threadIdx.x != 12) sums[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = sums[threadIdx.x];
}

__global__ void reads_shared_of_former_block_kernel(float* y) {
  __shared__ float kept[32];
  if (blockIdx.x == 0) kept[threadIdx.x] = 1;
  y[blockIdx.x * 32 + threadIdx.x] = kept[threadIdx.x];
}

int host_variable = 0;

__global__ void writes_host_variable_kernel(int* variable) { *variable = 1; }

}  // namespace

void barrier_in_a_branch() { start(1, 64, 0, barrier_in_a_branch_kernel); }
void leaves_before_the_barrier(int n) {
  start(1, 64, 0, leaves_before_the_barrier_kernel, static_cast<unsigned>(n));
}
void two_barriers() { start(1, 64, 0, two_barriers_kernel); }
void lane_never_shuffles() { start(1, 32, 0, lane_never_shuffles_kernel); }
void lane_left_before_shuffle() { start(1, 32, 0, lane_left_before_shuffle_kernel); }
void mask_without_the_caller() { start(1, 32, 0, mask_without_the_caller_kernel); }
void reads_lane_outside_the_mask() { start(1, 32, 0, reads_lane_outside_the_mask_kernel); }
void mask_beyond_the_block() { start(1, 20, 0, mask_beyond_the_block_kernel); }
void shuffle_meets_vote() { start(1, 32, 0, shuffle_meets_vote_kernel); }
void width_is_no_power_of_two() { start(1, 32, 0, width_is_no_power_of_two_kernel); }

void no_barrier_after_writing(const float* x, float* y) {
  start(1, 64, 0, no_barrier_after_writing_kernel, x, y);
}
void no_barrier_before_writing(const float* x, float* y) {
  start(1, 64, 0, no_barrier_before_writing_kernel, x, y);
}
void shuffle_instead_of_syncwarp(const float* x, float* y) {
  start(1, 32, 0, shuffle_instead_of_syncwarp_kernel, x, y);
}
void half_a_syncwarp(const float* x, float* y) { start(1, 32, 0, half_a_syncwarp_kernel, x, y); }
void all_write_one_word(float* y) { start(1, 2, 0, all_write_one_word_kernel, y); }
void atomic_and_plain(int* y) { start(1, 64, 0, atomic_and_plain_kernel, y); }
void blocks_write_one_word(float* y) { start(3, 32, 0, blocks_write_one_word_kernel, y); }
void block_reads_another_blocks_word(float* y) {
  start(3, 1, 0, block_reads_another_blocks_word_kernel, y);
}
void races_on_bfloat16(const __nv_bfloat16* x, __nv_bfloat16* y) {
  start(1, 64, 0, races_on_bfloat16_kernel, x, y);
}

void races_on_returned_struct(const float* x, float* y) {
  start(1, 64, 0, races_on_returned_struct_kernel, x, y);
}
void races_on_given_struct(const float* x, float* y) {
  start(1, 64, 0, races_on_given_struct_kernel, x, y);
}

void past_static_array(float* y, int index) { start(1, 16, 0, past_static_array_kernel, y, index); }
void past_array_of_template(float* y, int index) {
  start(1, 16, 0, past_array_of_template_kernel<float>, y, index);
}
void past_dynamic_array(float* y, int index) {
  start(1, 8, 8 * sizeof(float), past_dynamic_array_kernel, y, index);
}
void copies(const float* x, float* y, int n) {
  start((static_cast<unsigned>(n) + 31) / 32, 32, 0, copies_kernel, x, y, n);
}
void copies_fours(const float* x, float* y) {
  start(1, 1, 0, copies_fours_kernel, reinterpret_cast<const FourFloats*>(x),
        reinterpret_cast<FourFloats*>(y));
}
void writes_at(float* y, int index) { start(1, 1, 0, writes_at_kernel, y, index); }
void reads_unwritten_shared(float* y) { start(1, 32, 0, reads_unwritten_shared_kernel, y); }
void reads_shared_of_former_block(float* y) {
  start(2, 32, 0, reads_shared_of_former_block_kernel, y);
}
void writes_host_variable() { start(1, 1, 0, writes_host_variable_kernel, &host_variable); }

float read_on_host(const float* x) { return *x; }

}  // namespace lab::emulation
