// Which loss and which Adam a training program uses: the CPU's or the GPU's.
#pragma once

#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"
#include "labs/01_single_gpu/single_gpu.h"

namespace lab01cuda {

struct TrainingFunctions {
  lab01::LossFunction loss;
  lab::AdamUpdate adam;
};

/// On the CPU, causal_lm_loss and adam_update of single_gpu.h. On a GPU, the same functions built
/// on the kernels of kernels.h: logits and the spans of adam_update are GPU memory, and the loss
/// waits for the GPU. Throws lab::Error for a GPU in a build without CUDA.
TrainingFunctions training_functions(lab::Device device);

}  // namespace lab01cuda
