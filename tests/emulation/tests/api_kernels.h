// A kernel for the tests of the runtime API.
#pragma once

#include <cuda_runtime.h>

namespace lab::emulation {

/// y[i] = 2 * y[i] + add, in the stream; one block of n threads.
cudaError_t double_and_add(float* y, int n, float add, cudaStream_t stream);
/// The same with any configuration.
cudaError_t double_and_add(float* y, int n, float add, const cudaLaunchConfig_t& config);
/// Lets the kernel use that much dynamic shared memory.
cudaError_t allow_shared(int bytes);

}  // namespace lab::emulation
