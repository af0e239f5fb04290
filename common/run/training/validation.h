// Validation loss: how well the model predicts stories that it was not trained on.
#pragma once

#include <functional>
#include <optional>

#include "common/comm/process_group.h"
#include "common/data/token_dataset.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/run/options/run_plan.h"

namespace lab {

/// Who validates together. By default this rank alone, with the whole model.
struct ValidatingRanks {
  /// Ranks with the same weights (of a pipeline: of the same stage), among which the microbatches
  /// are divided.
  ProcessGroup* replicas = nullptr;
  /// The stages of a model that is cut, and the function that computes the logits: called on all
  /// stages, it returns them on the last.
  ProcessGroup* pipeline = nullptr;
  std::function<Tensor(const TokenBatch& batch)> forward = {};
};

/// Mean loss per token over `plan.validation_batches` microbatches, of sequences that are spread
/// evenly over the validation split: the same ones at every call. Nothing if the split is shorter
/// than one sequence. Changes neither weights nor gradients. All of `ranks` call it, and all get
/// the mean over all microbatches.
std::optional<double> validation_loss(LlamaStage& stage, const TokenDataset& data,
                                      const RunPlan& plan, const LossFunction& loss,
                                      const ValidatingRanks& ranks = {});

}  // namespace lab
