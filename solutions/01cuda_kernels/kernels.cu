// Lab 01, CUDA part · three kernels of the training step: solution.
#include <cuda_runtime.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/gpu/cuda/launch.h"
#include "common/gpu/cuda/stream.h"
#include "labs/01cuda_kernels/kernels.h"

namespace lab01cuda {
namespace {

constexpr int kWarpSize = 32;
constexpr int kWarps = kThreads / kWarpSize;
constexpr unsigned kAllLanes = 0xffffffffU;

// Task C1

/// The sum of `value` over the threads of the block, with the same bits in all of them. Only once
/// per kernel: a second call would need a barrier first, so that all threads have read `parts`.
__device__ float block_sum(float value) {
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2)
    value += __shfl_down_sync(kAllLanes, value, offset);

  __shared__ float parts[kWarps];
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  float sum = 0.0F;
  for (int warp = 0; warp < kWarps; ++warp) sum += parts[warp];
  return sum;
}

__global__ void rmsnorm_kernel(const float* x, const float* weight, float epsilon, float* y,
                               float* inverse_rms, int64_t channels) {
  const int64_t first = blockIdx.x * channels;  // of this block's row
  float own = 0.0F;
  for (int64_t c = threadIdx.x; c < channels; c += kThreads) own += x[first + c] * x[first + c];
  const float sum = block_sum(own);

  const float factor = 1.0F / sqrtf(sum / static_cast<float>(channels) + epsilon);
  if (threadIdx.x == 0) inverse_rms[blockIdx.x] = factor;
  for (int64_t c = threadIdx.x; c < channels; c += kThreads)
    y[first + c] = x[first + c] * factor * weight[c];
}

// Task C2

/// The largest of a set of scores, and the sum of exp(score - largest).
struct ScoreSum {
  float largest;
  float sum;
};

/// The ScoreSum of both sets of scores together.
__device__ ScoreSum merged(ScoreSum a, ScoreSum b) {
  const float largest = fmaxf(a.largest, b.largest);
  return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest)};
}

/// The ScoreSum of all threads of the block, with the same bits in all of them.
__device__ ScoreSum block_merged(ScoreSum own) {
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const float largest = __shfl_down_sync(kAllLanes, own.largest, offset);
    const float sum = __shfl_down_sync(kAllLanes, own.sum, offset);
    own = merged(own, {largest, sum});
  }

  __shared__ ScoreSum parts[kWarps];
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = own;
  __syncthreads();
  ScoreSum all = parts[0];
  for (int warp = 1; warp < kWarps; ++warp) all = merged(all, parts[warp]);
  return all;
}

__global__ void softmax_cross_entropy_kernel(float* logits, const int32_t* targets, float scale,
                                             float* losses, int64_t vocab) {
  float* row = logits + blockIdx.x * vocab;
  const int32_t target = targets[blockIdx.x];
  if (target < 0) {  // the same in all threads of the block, so all return before the barrier
    for (int64_t v = threadIdx.x; v < vocab; v += kThreads) row[v] = 0.0F;
    if (threadIdx.x == 0) losses[blockIdx.x] = 0.0F;
    return;
  }

  // For a thread without a score. Not -infinity: -infinity - -infinity is NaN.
  ScoreSum own = {-FLT_MAX, 0.0F};
  for (int64_t v = threadIdx.x; v < vocab; v += kThreads) own = merged(own, {row[v], 1.0F});
  const ScoreSum all = block_merged(own);

  for (int64_t v = threadIdx.x; v < vocab; v += kThreads) {
    const float score = row[v] - all.largest;
    const float onehot = v == target ? 1.0F : 0.0F;
    if (v == target) losses[blockIdx.x] = logf(all.sum) - score;
    row[v] = scale * (expf(score) / all.sum - onehot);
  }
}

// Task C3

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
  const int64_t threads = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += threads) {
    const float gradient = gradients[i];
    const float m = step.beta1 * first_moment[i] + (1.0F - step.beta1) * gradient;
    const float v = step.beta2 * second_moment[i] + (1.0F - step.beta2) * gradient * gradient;
    first_moment[i] = m;
    second_moment[i] = v;
    parameters[i] -=
        step.learning_rate * (m / step.correction1) / (sqrtf(v / step.correction2) + step.epsilon);
  }
}

}  // namespace

void launch_rmsnorm(const float* x, const float* weight, float epsilon, float* y,
                    float* inverse_rms, int64_t rows, int64_t channels) {
  if (channels == 0) return;
  lab::cuda::launch(rmsnorm_kernel, static_cast<unsigned>(rows), kThreads, lab::cuda::stream(), x,
                    weight, epsilon, y, inverse_rms, channels);
}

void launch_softmax_cross_entropy(float* logits, const int32_t* targets, float scale, float* losses,
                                  int64_t rows, int64_t vocab) {
  if (vocab == 0) return;
  lab::cuda::launch(softmax_cross_entropy_kernel, static_cast<unsigned>(rows), kThreads,
                    lab::cuda::stream(), logits, targets, scale, losses, vocab);
}

void launch_adam(const lab::AdamConfig& config, float learning_rate, int64_t step,
                 float* parameters, const float* gradients, float* first_moment,
                 float* second_moment, int64_t count) {
  // In double, rounded once at the end: with beta^step rounded to float first, 1 - beta^step would
  // lose digits.
  const AdamStep constants{
      .learning_rate = learning_rate,
      .beta1 = config.beta1,
      .beta2 = config.beta2,
      .epsilon = config.epsilon,
      .correction1 = static_cast<float>(1.0 - std::pow(double{config.beta1}, step)),
      .correction2 = static_cast<float>(1.0 - std::pow(double{config.beta2}, step))};
  const int64_t blocks = std::min((count + kThreads - 1) / kThreads, kMaxBlocks);
  lab::cuda::launch(adam_kernel, static_cast<unsigned>(blocks), kThreads, lab::cuda::stream(),
                    constants, parameters, gradients, first_moment, second_moment, count);
}

}  // namespace lab01cuda
