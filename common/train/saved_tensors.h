// SavedTensors: what a checkpoint holds of a model, whole or in stages.
#pragma once

#include <vector>

#include "common/comm/process_group.h"
#include "common/io/safetensors.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"

namespace lab {

/// In the order of the layers, under the names of the parameters; the optimizer's state as
/// "exp_avg.<name>".
struct SavedTensors {
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
};

/// Views of a stage's tensors.
SavedTensors saved_tensors(const LlamaStage& stage, const Optimizer& optimizer);

/// Those of all stages of a pipeline on its rank 0, the other stages' as copies; nothing on the
/// other ranks. All ranks call it. Sends each stage's weights and optimizer state to rank 0.
SavedTensors gather_saved_tensors(const LlamaStage& stage, const Optimizer& optimizer,
                                  ProcessGroup& pipeline);

}  // namespace lab
