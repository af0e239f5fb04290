#include "common/optim/clip.h"

#include <cmath>

#include "common/error.h"
#include "common/ops/ops.h"

namespace lab {

std::vector<double> gradient_squares(const LlamaStage& stage) {
  std::vector<Tensor> gradients;
  for (const Parameter& parameter : stage.named_parameters())
    gradients.push_back(parameter.gradient);
  return sums_of_squares(gradients);
}

double gradient_norm(const LlamaStage& stage) {
  double sum = 0.0;
  for (double squares : gradient_squares(stage)) sum += squares;
  return std::sqrt(sum);
}

double clip_gradients(LlamaStage& stage, double max_norm) {
  require(max_norm > 0.0,
          "clip_gradients: max_norm is {}, it must be positive; without a limit, do not "
          "call it",
          max_norm);
  const double norm = gradient_norm(stage);
  if (norm > max_norm) {
    scale(stage.gradients(), static_cast<float>(max_norm / norm));
  }
  return norm;
}

}  // namespace lab
