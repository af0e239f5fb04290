#include "common/cuda/stream.h"

#include "common/cuda/cuda_accelerator.h"

namespace lab::cuda {

cudaStream_t stream() { return cuda_accelerator().context().stream(); }

}  // namespace lab::cuda
