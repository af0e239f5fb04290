#include "api_kernels.h"

namespace lab::emulation {
namespace {

__global__ void double_and_add_kernel(float* y, int n, float add) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = 2 * y[i] + add;
}

}  // namespace

cudaError_t double_and_add(float* y, int n, float add, const cudaLaunchConfig_t& config) {
  return cudaLaunchKernelEx(&config, double_and_add_kernel, y, n, add);
}

cudaError_t double_and_add(float* y, int n, float add, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = static_cast<unsigned>(n);
  config.stream = stream;
  return double_and_add(y, n, add, config);
}

cudaError_t allow_shared(int bytes) {
  return cudaFuncSetAttribute(double_and_add_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              bytes);
}

}  // namespace lab::emulation
