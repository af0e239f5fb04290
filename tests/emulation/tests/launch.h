// Launching a kernel in a line.
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace lab::emulation {

/// Queues the kernel in the default stream.
template <typename... Parameters, typename... Arguments>
cudaError_t start(dim3 grid, dim3 block, size_t shared, void (*kernel)(Parameters...),
                  Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace lab::emulation
