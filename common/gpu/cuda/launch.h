// launch(): starts a kernel, checked. An ordinary function instead of <<<>>>, so that the same
// source also compiles without nvcc.
//
//   launch(scale_kernel, blocks, 256, stream, data, count, factor);
//   launch(tile_kernel, blocks, dim3(32, 8), stream, DynamicShared{bytes}, data);
//
// Arguments are converted to the kernel's parameters as in a call. A grid without blocks starts
// nothing. A failed launch throws Error; a kernel that fails while it runs is reported by a later
// call (see check.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "common/gpu/cuda/check.h"

namespace lab::cuda {

/// Bytes of dynamic shared memory of a launch; the kernel gets them with dynamic_shared().
struct DynamicShared {
  size_t bytes;
};

/// More than this must be requested for each kernel; the hardware limit is at least 64 KiB.
constexpr size_t kSharedBytesUnasked = size_t{48} << 10;

template <typename... Parameters, typename... Args>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            DynamicShared shared, Args&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;  // CUDA would refuse it
  if (shared.bytes > kSharedBytesUnasked) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared.bytes)),
          "cudaFuncSetAttribute", "asking for {} bytes of shared memory per block", shared.bytes);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared.bytes;
  config.stream = stream;
  check(
      cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), "cudaLaunchKernelEx",
      "starting a kernel of {} x {} x {} blocks, each of {} threads with {} bytes of shared memory",
      grid.x, grid.y, grid.z, block.x * block.y * block.z, shared.bytes);
}

template <typename... Parameters, typename... Args>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            Args&&... args) {
  launch(kernel, grid, block, stream, DynamicShared{0}, std::forward<Args>(args)...);
}

/// The number of blocks for `count` items, `per_block` each.
inline unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

}  // namespace lab::cuda
