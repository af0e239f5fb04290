#include "common/optim/stages.h"

#include <cmath>

#include "common/comm/agreement.h"
#include "common/error.h"
#include "common/ops/ops.h"
#include "common/optim/clip.h"

namespace lab {

double clip_gradients(LlamaStage& stage, double max_norm, ProcessGroup& pipeline) {
  require(max_norm > 0.0, "clip_gradients: the largest norm is {}, it must be positive", max_norm);
  const int rank = pipeline.rank();
  double sum = 0.0;
  if (rank > 0) {
    const Tensor before = as_tensor(0.0);
    pipeline.recv(before, rank - 1);
    sum = as_double(before.data());
  }
  for (double squares : gradient_squares(stage)) sum += squares;
  if (rank + 1 < pipeline.size()) pipeline.send(as_tensor(sum), rank + 1);
  const double norm = std::sqrt(from_last_stage(sum, pipeline));
  if (norm > max_norm) scale(stage.gradients(), static_cast<float>(max_norm / norm));
  return norm;
}

}  // namespace lab
