// The sum of all squares, in double, with the same bits on every run and every GPU: how the
// elements are divided depends only on their number, and no atomics are involved.
//
// First kernel: up to kMostBlocks blocks; each thread adds every (blocks x kThreads)-th element,
// then the block its threads' sums. Second kernel: one block adds the blocks' sums in the same way.
#include <algorithm>

#include "common/error.h"
#include "common/gpu/cuda/check.h"
#include "common/gpu/kernels/elementwise.h"
#include "common/gpu/kernels/row_warps.h"

namespace lab::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 1024;
constexpr int kElementsPerThread = 16;

/// The sum of one value per thread of the block, in thread 0.
__device__ double block_sum(double value) {
  __shared__ double sums[kThreads / kWarp];
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  double total = 0.0;
  if (threadIdx.x == 0)
    for (int warp = 0; warp < kThreads / kWarp; ++warp) total += sums[warp];
  return total;
}

__global__ void square_sums_kernel(const float* x, int64_t count, double* block_sums) {
  double sum = 0.0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) block_sums[blockIdx.x] = sum;
}

__global__ void total_kernel(const double* block_sums, int blocks, double* total) {
  double sum = 0.0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kThreads) sum += block_sums[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = sum;
}

}  // namespace

std::vector<double> sums_of_squares(const Context& context, std::span<const Tensor> tensors) {
  require(!context.recording(), "recorded work must not wait for a number from the GPU");
  std::vector<double> results(tensors.size());
  // The blocks' sums, one tensor after the other in the same place, and the totals.
  const Scratch<double> sums(context, kMostBlocks);
  const Scratch<double> totals(context, tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t count = tensors[i].numel();
    // An empty tensor also has one block, with nothing to add.
    const unsigned blocks = std::clamp<unsigned>(blocks_for(count, kThreads * kElementsPerThread),
                                                 1, kMostBlocks);
    launch(square_sums_kernel, blocks, kThreads, context.stream(), tensors[i].data(), count,
           sums.data());
    launch(total_kernel, 1, kThreads, context.stream(), sums.data(), static_cast<int>(blocks),
           totals.data() + i);
  }
  check(cudaMemcpyAsync(results.data(), totals.data(), results.size() * sizeof(double),
                        cudaMemcpyDeviceToHost, context.stream()),
        "cudaMemcpyAsync", "fetching sums of squares");
  check(cudaStreamSynchronize(context.stream()), "cudaStreamSynchronize",
        "waiting for sums of squares");
  return results;
}

}  // namespace lab::cuda
