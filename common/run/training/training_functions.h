// Which loss and which Adam a training program uses: the CPU's or the GPU's.
#pragma once

#include "common/model/loss_function.h"
#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"

namespace lab {

struct TrainingFunctions {
  LossFunction loss;
  AdamUpdate adam;
};

/// On the CPU, causal_lm_loss and adam_update of lab 01. On a GPU, the same functions built on the
/// kernels of its CUDA part: logits and the spans of adam_update are GPU memory, and the loss waits
/// for the GPU. Throws Error for a GPU in a build without CUDA.
///
/// A program that calls it is linked with lab 01, and with the CMake target lab_training_functions
/// or one of its variants.
TrainingFunctions training_functions(Device device);

}  // namespace lab
