#include "common/gpu/cuda/stream.h"

#include "common/gpu/cuda/context.h"

namespace lab::cuda {

cudaStream_t stream() { return current_context().stream(); }

}  // namespace lab::cuda
