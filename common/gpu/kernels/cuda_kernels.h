// Kernels on the GPU.
#pragma once

#include <memory>

#include "common/gpu/cuda/context.h"
#include "common/ops/kernels.h"

namespace lab::cuda {

/// They launch work on the context's stream; only sums_of_squares waits for it. The context must
/// outlive them.
std::unique_ptr<Kernels> make_kernels(const Context& context);

}  // namespace lab::cuda
