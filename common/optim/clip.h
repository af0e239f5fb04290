// Gradient clipping by global norm.
#pragma once

#include <vector>

#include "common/model/llama_stage.h"

namespace lab {

/// The sum of squares of each parameter's gradient, in the order of the parameters.
std::vector<double> gradient_squares(const LlamaStage& stage);

/// The L2 norm of all gradients of a stage. Squares are summed per tensor in double and the sums
/// added in the order of the parameters, so that the value does not depend on the thread count.
double gradient_norm(const LlamaStage& stage);

/// Scales all gradients by max_norm / norm if their norm exceeds max_norm > 0 (Pascanu et al.,
/// 2013). Returns the norm before.
double clip_gradients(LlamaStage& stage, double max_norm);

}  // namespace lab
