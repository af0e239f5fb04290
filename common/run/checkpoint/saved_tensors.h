// SavedGroup: the tensors that a checkpoint holds of a model, or of one stage of it.
#pragma once

#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "common/io/safetensors.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"

namespace lab {

/// Tensors that go into one file, in the order of the layers.
struct SavedGroup {
  std::string name;  // "model", or "optimizer.exp_avg"
  std::vector<NamedTensor> tensors;
};

/// Views of a stage's tensors: first the weights, under the names of the parameters; then each
/// kind of the optimizer's state, as "exp_avg.<name>".
std::vector<SavedGroup> saved_tensors(const LlamaStage& stage, const Optimizer& optimizer);

/// Reassembles, on the first rank of `slices`, the tensors of which these ranks hold slices; the
/// others get nothing. All of them call it. One reduce per tensor, so that on the other ranks
/// memory grows by one tensor only.
std::vector<SavedGroup> gathered(const std::vector<SavedGroup>& groups, const LlamaStage& stage,
                                 ProcessGroup& slices);

/// A checkpoint has two sets of tensors, each in one file or in several.
inline constexpr const char* kModelSet = "model";
inline constexpr const char* kOptimizerSet = "optimizer";

/// The set that a group belongs to.
inline const char* set_of(const SavedGroup& group) {
  return group.name == kModelSet ? kModelSet : kOptimizerSet;
}

}  // namespace lab
