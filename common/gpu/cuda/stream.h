// The stream of this process, for kernels outside of common/.
#pragma once

#include <cuda_runtime.h>

namespace lab::cuda {

/// On which all kernels, products and copies of the workbook are asked for, and in whose order they
/// happen: that of accelerator(). Throws Error when there is no GPU.
cudaStream_t stream();

}  // namespace lab::cuda
