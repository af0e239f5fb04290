// Lab 01, CUDA part · three kernels of the training step. You write this file; kernels.h is its
// contract.
#include <cuda_runtime.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/gpu/cuda/launch.h"
#include "common/gpu/cuda/stream.h"
#include "common/todo.h"
#include "labs/01cuda_kernels/kernels.h"

namespace lab01cuda {

inline constexpr int kWarpSize = 32;
inline constexpr int kWarps = kThreads / kWarpSize;
inline constexpr unsigned kAllLanes = 0xffffffffU;

namespace {

// ---------------------------------------------------------------------------------------- task C1

/// The sum of `value` over the threads of the block, with the same bits in all of them.
[[maybe_unused]] __device__ float block_sum(float value) {
  // TODO(C1): the block reduction.
  //  1. The sum of each warp, by shuffles with kAllLanes: five steps, over 16, 8, 4, 2, 1 lanes.
  //  2. Lane 0 of each warp puts it into an array in shared memory, one place per warp.
  //  3. No thread may read the array before all have written.
  //  4. Every thread adds up its kWarps numbers.
  return value;
}

__global__ void rmsnorm_kernel(const float* x, const float* weight, float epsilon, float* y,
                               float* inverse_rms, int64_t channels) {
  // TODO(C1): one row, by all threads of the block.
  //  5. Row blockIdx.x is this block's. Where does it begin?
  //  6. Add up the squares of this thread's columns: threadIdx.x, threadIdx.x + kThreads, ... to
  //     the end of the row.
  //  7. block_sum: which threads call it?
  //  8. One thread writes inverse_rms; each writes y at its columns.
}

// ---------------------------------------------------------------------------------------- task C2

/// The largest of a set of scores, and the sum of exp(score - largest).
struct ScoreSum {
  float largest;
  float sum;
};

/// The ScoreSum of both sets of scores together.
[[maybe_unused]] __device__ ScoreSum merged(ScoreSum a, ScoreSum b) {
  // TODO(C2): 1. What happens to a.sum if b.largest is larger, and the other way round?
  return a;
}

/// The ScoreSum of all threads of the block, with the same bits in all of them.
[[maybe_unused]] __device__ ScoreSum block_merged(ScoreSum own) {
  // TODO(C2): 2. As in block_sum, with `merged` instead of +, and two shuffles per step.
  return own;
}

__global__ void softmax_cross_entropy_kernel(float* logits, const int32_t* targets, float scale,
                                             float* losses, int64_t vocab) {
  // TODO(C2): one row, by all threads of the block.
  //  3. Nothing to predict (target -1): loss 0, gradient 0.
  //  4. This thread's scores in one ScoreSum. What does a thread without scores begin with?
  //  5. block_merged.
  //  6. Second pass: each thread turns its scores into scale * (softmax - onehot). Which thread
  //     can write the loss before the target's score is gone?
}

// ---------------------------------------------------------------------------------------- task C3

constexpr int64_t kMaxBlocks = 1024;

/// What is the same for all elements of an update: computed once, on the host.
struct AdamStep {
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon;
  float correction1;
  float correction2;
};

__global__ void adam_kernel(AdamStep step, float* parameters, const float* gradients,
                            float* first_moment, float* second_moment, int64_t count) {
  // TODO(C3):
  //  2. A loop over this thread's elements: it begins at the thread's number in the grid, advances
  //     by the number of threads in the grid, and stays below count.
  //  3. Per element: read all four, compute the new moments and the new parameter, write three.
}

}  // namespace

void launch_rmsnorm(const float* x, const float* weight, float epsilon, float* y,
                    float* inverse_rms, int64_t rows, int64_t channels) {
  lab::not_implemented("C1", "labs/01cuda_kernels/kernels.cu");  // remove this line
  if (channels == 0) return;
  lab::cuda::launch(rmsnorm_kernel, static_cast<unsigned>(rows), kThreads, lab::cuda::stream(), x,
                    weight, epsilon, y, inverse_rms, channels);
}

void launch_softmax_cross_entropy(float* logits, const int32_t* targets, float scale, float* losses,
                                  int64_t rows, int64_t vocab) {
  lab::not_implemented("C2", "labs/01cuda_kernels/kernels.cu");  // remove this line
  if (vocab == 0) return;
  lab::cuda::launch(softmax_cross_entropy_kernel, static_cast<unsigned>(rows), kThreads,
                    lab::cuda::stream(), logits, targets, scale, losses, vocab);
}

void launch_adam(const lab::AdamConfig& config, float learning_rate, int64_t step,
                 float* parameters, const float* gradients, float* first_moment,
                 float* second_moment, int64_t count) {
  lab::not_implemented("C3", "labs/01cuda_kernels/kernels.cu");  // remove this line
  // TODO(C3): 1. The two bias corrections, 1 - beta^step, in double.
  const AdamStep constants{.learning_rate = learning_rate,
                           .beta1 = config.beta1,
                           .beta2 = config.beta2,
                           .epsilon = config.epsilon,
                           .correction1 = 1.0F,
                           .correction2 = 1.0F};
  const int64_t blocks = std::min((count + kThreads - 1) / kThreads, kMaxBlocks);
  lab::cuda::launch(adam_kernel, static_cast<unsigned>(blocks), kThreads, lab::cuda::stream(),
                    constants, parameters, gradients, first_moment, second_moment, count);
}

}  // namespace lab01cuda
