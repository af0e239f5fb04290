// The stream of this process, for kernels outside common/.
#pragma once

#include <cuda_runtime.h>

namespace lab::cuda {

/// The stream of accelerator(), on which all kernels, products and copies of the workbook run, in
/// order. Throws Error if there is no GPU.
cudaStream_t stream();

}  // namespace lab::cuda
