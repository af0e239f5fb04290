// Validation loss: how well the model predicts stories that it was not trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "common/comm/process_group.h"
#include "common/data/token_dataset.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/run/options/run_plan.h"

namespace lab {

/// Mean loss per token over `plan.validation_batches` microbatches, spread evenly over the
/// validation split: the same ones at every call. Nothing if the split is shorter than one
/// sequence. Changes neither weights nor gradients.
std::optional<double> validation_loss(LlamaStage& model, const TokenDataset& data,
                                      const RunPlan& plan, const LossFunction& loss);

/// The same, with the microbatches divided among the ranks of a group, which hold the same weights.
/// All of them call it, and all get the mean over all microbatches.
std::optional<double> validation_loss(LlamaStage& model, const TokenDataset& data,
                                      const RunPlan& plan, const LossFunction& loss,
                                      ProcessGroup& group);

/// The same with a model that is cut into the stages of a pipeline. `forward` is called on all
/// ranks and returns the logits on the last one. All ranks get the loss. With `replicas`, the ranks
/// that hold this stage in several pipelines, the microbatches are divided among the pipelines.
using PipelineForward = std::function<Tensor(const TokenBatch& batch)>;
std::optional<double> validation_loss(LlamaStage& stage, const TokenDataset& data,
                                      const RunPlan& plan, const LossFunction& loss,
                                      const PipelineForward& forward, ProcessGroup& pipeline,
                                      ProcessGroup* replicas = nullptr);

}  // namespace lab
