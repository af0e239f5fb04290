#include "common/train/saved_tensors.h"

#include <string>
#include <utility>

namespace lab {
namespace {

// A flat tensor with the layout of the stage's weights, cut into one tensor per parameter.
void append_cut(const LlamaStage& stage, const std::string& prefix, const Tensor& flat,
                std::vector<NamedTensor>& tensors) {
  const float* flat_weights = stage.parameters().data();
  for (const Parameter& parameter : stage.named_parameters()) {
    const int64_t first = parameter.value.data() - flat_weights;
    const Tensor slice = flat.rows(first, first + parameter.value.numel());
    tensors.push_back({prefix + parameter.name, slice.view(parameter.value.shape())});
  }
}

// [first_layer, last_layer) of every rank's stage.
std::vector<StageSpan> gather_spans(const StageSpan& own, ProcessGroup& pipeline) {
  const Tensor mine =
      Tensor::from({static_cast<float>(own.first_layer), static_cast<float>(own.last_layer)}, {2});
  const Tensor all = Tensor::empty({pipeline.size(), 2});
  pipeline.all_gather(all, mine);
  std::vector<StageSpan> spans;
  for (int rank = 0; rank < pipeline.size(); ++rank) {
    const auto layers = all.rows(rank, rank + 1).values();
    spans.push_back({static_cast<int64_t>(layers[0]), static_cast<int64_t>(layers[1]), rank == 0,
                     rank == pipeline.size() - 1});
  }
  return spans;
}

}  // namespace

SavedTensors saved_tensors(const LlamaStage& stage, const Optimizer& optimizer) {
  SavedTensors saved;
  append_cut(stage, "", stage.parameters(), saved.model);
  for (const auto& [name, state] : optimizer.state())
    append_cut(stage, name + ".", state, saved.optimizer);
  return saved;
}

SavedTensors gather_saved_tensors(const LlamaStage& stage, const Optimizer& optimizer,
                                  ProcessGroup& pipeline) {
  const std::vector<StageSpan> spans = gather_spans(stage.span(), pipeline);
  if (pipeline.rank() > 0) {
    pipeline.send(stage.parameters(), 0);
    for (const auto& [name, state] : optimizer.state()) pipeline.send(state, 0);
    return {};
  }
  SavedTensors saved;
  append_cut(stage, "", stage.parameters(), saved.model);
  const std::vector<Optimizer::State> states = optimizer.state();
  std::vector<std::vector<NamedTensor>> by_state(states.size());  // in the order of a whole model
  for (size_t i = 0; i < states.size(); ++i)
    append_cut(stage, states[i].name + ".", states[i].value, by_state[i]);
  for (int rank = 1; rank < pipeline.size(); ++rank) {
    const LlamaStage other(stage.config(), spans[static_cast<size_t>(rank)], Device::kCpu,
                           /*seed=*/0);
    pipeline.recv(other.parameters(), rank);
    append_cut(other, "", other.parameters(), saved.model);
    for (size_t i = 0; i < states.size(); ++i) {
      const Tensor state = Tensor::empty({other.parameters().numel()});
      pipeline.recv(state, rank);
      append_cut(other, states[i].name + ".", state, by_state[i]);
    }
  }
  for (const auto& tensors : by_state)
    saved.optimizer.insert(saved.optimizer.end(), tensors.begin(), tensors.end());
  return saved;
}

}  // namespace lab
