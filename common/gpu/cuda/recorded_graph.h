// Recorded work as a CUDA graph.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>

#include "common/gpu/cuda/context.h"
#include "common/tensor/accelerator.h"

namespace lab::cuda {

/// See Accelerator::record. If `work` throws, the recording is dropped and the exception
/// propagates.
std::unique_ptr<RecordedWork> record_graph(Context& context, const std::function<void()>& work);

}  // namespace lab::cuda
