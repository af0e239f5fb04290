#include "common/run/checkpoint/saved_tensors.h"

#include <fmt/format.h>

#include "common/model/slice.h"
#include "common/tensor/memory_account.h"

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

std::vector<SavedGroup> gathered(const std::vector<SavedGroup>& groups, const LlamaStage& stage,
                                 ProcessGroup& slices) {
  const MemoryOf kind(MemoryKind::kCommunication);
  std::vector<SavedGroup> whole;
  for (const SavedGroup& group : groups) {
    SavedGroup& all = whole.emplace_back(SavedGroup{group.name, {}});
    for (const auto& [name, value] : group.tensors) {
      // Every number is 0 on all ranks but one.
      const Tensor sum = Tensor::zeros(whole_shape(name, stage.config()));
      if (cut_of(name) != Cut::kNone || slices.rank() == 0)
        slice_of(name, sum, stage.slice()).copy_from(value);
      slices.reduce(sum);
      if (slices.rank() == 0) all.tensors.push_back({name, sum});
    }
  }
  return whole;
}

}  // namespace lab
