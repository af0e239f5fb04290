#include "common/train/stages.h"

#include <cmath>
#include <cstring>

#include "common/ops/ops.h"
#include "common/tensor/error.h"

namespace lab {
namespace {

/// A double travels as the bits of two floats.
class Parcelled {
 public:
  explicit Parcelled(double number) { std::memcpy(tensor.data(), &number, sizeof number); }
  double number() const {
    double result = 0;
    std::memcpy(&result, tensor.data(), sizeof result);
    return result;
  }
  Tensor tensor = Tensor::empty({2});
};

}  // namespace

double from_last_stage(double number, ProcessGroup& pipeline) {
  const Parcelled parcel(number);
  if (pipeline.size() > 1) pipeline.broadcast(parcel.tensor, pipeline.size() - 1);
  return parcel.number();
}

double clip_gradients(LlamaStage& stage, double max_norm, ProcessGroup& pipeline) {
  require(max_norm > 0.0, "clip_gradients: the largest norm is {}, it must be positive", max_norm);
  const int rank = pipeline.rank();
  double sum = 0.0;
  if (rank > 0) {
    const Parcelled before(0.0);
    pipeline.recv(before.tensor, rank - 1);
    sum = before.number();
  }
  for (const Parameter& parameter : stage.named_parameters())
    sum += sum_of_squares(parameter.gradient);
  if (rank + 1 < pipeline.size()) pipeline.send(Parcelled(sum).tensor, rank + 1);
  const double norm = std::sqrt(from_last_stage(sum, pipeline));
  if (norm > max_norm) scale(stage.gradients(), static_cast<float>(max_norm / norm));
  return norm;
}

}  // namespace lab
