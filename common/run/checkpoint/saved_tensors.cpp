// SavedGroup: the tensors that a checkpoint holds of a model, or of one stage of it.
#include "common/run/checkpoint/saved_tensors.h"

#include <fmt/format.h>

namespace lab {
namespace {

// A flat tensor with the layout of the stage's weights, cut into one tensor per parameter.
std::vector<NamedTensor> cut(const LlamaStage& stage, const std::string& prefix,
                             const Tensor& flat) {
  std::vector<NamedTensor> tensors;
  const float* flat_weights = stage.parameters().data();
  for (const Parameter& parameter : stage.named_parameters()) {
    const int64_t first = parameter.value.data() - flat_weights;
    const Tensor slice = flat.rows(first, first + parameter.value.numel());
    tensors.push_back({prefix + parameter.name, slice.view(parameter.value.shape())});
  }
  return tensors;
}

}  // namespace

std::vector<SavedGroup> saved_tensors(const LlamaStage& stage, const Optimizer& optimizer) {
  std::vector<SavedGroup> groups = {{kModelSet, cut(stage, "", stage.parameters())}};
  for (const auto& [name, state] : optimizer.state())
    groups.push_back({fmt::format("{}.{}", kOptimizerSet, name), cut(stage, name + ".", state)});
  return groups;
}

}  // namespace lab
