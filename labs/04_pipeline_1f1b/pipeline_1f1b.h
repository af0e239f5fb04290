// Lab 04 · one model cut over several ranks: one forward pass, then one backward pass, of the whole
// batch. This is the contract; you write pipeline_1f1b.cpp.
//
// Rank r of `pipeline` is stage r: it holds the weights of its own layers and nothing else. All
// functions but `split` are called by all ranks at the same time. No function keeps anything from
// one call to the next: its results depend on its arguments alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/config.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"

namespace lab04 {

/// Task 1 · Which part of the model each stage holds.
///
/// `layers`: how many the model has, all of one cost. `stages`: into how many parts, between 1 and
/// `layers`. `head_cost`: what the head costs, measured in layers; 0.8 means 80 % of a layer. The
/// embedding costs nothing.
/// Returns one span per stage. Together they are the whole model: the layers in order, none left
/// out and none twice, at least one on every stage; the first stage embeds, the last one has the
/// head. The slowest stage, its layers and perhaps the head counted, is as fast as it can be:
/// everybody waits for it. Any such split is right, where there are several.
std::vector<lab::StageSpan> split(int64_t layers, int stages, double head_cost);

/// Task 2 · The forward pass, through all stages.
///
/// The first stage embeds the tokens of `batch` [B, T]. Every other stage receives its input, the
/// hidden states [B, T, C], from the stage before. Every stage but the last sends its output to the
/// next stage. No other message; C is stage.config().dim.
/// `batch`: the same shape on every rank; only the first stage may rely on its tokens.
/// Returns what this stage has computed: the logits [B, T, V] on the last one, which nobody sends.
lab::Tensor forward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
                    lab::ProcessGroup& pipeline);

/// Task 3 · The backward pass, through all stages, from the last to the first.
///
/// Every stage but the last receives the gradient of the loss with respect to its output, [B, T,
/// C], from the next stage. Every stage but the first sends the gradient with respect to its
/// input to the stage before. No other message. The gradients of the stage's own weights are added
/// to stage.gradients().
/// `batch`: as for the forward pass; here only its shape matters.
/// `logits_gradient` [B, T, V]: on the last stage, where the loss has left it. Elsewhere an
/// undefined tensor.
void backward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
              const lab::Tensor& logits_gradient, lab::ProcessGroup& pipeline);

/// What lab 01's causal_lm_loss looks like to task 4: the sum of the cross-entropies of the batch,
/// divided by `total_targets`; it puts its gradient in the place of the logits.
using LossFunction = std::function<double(const lab::Tensor& logits, const lab::TokenBatch& batch,
                                          int64_t total_targets)>;

/// Task 4 · One optimizer step of the whole pipeline.
///
/// The weights after it are those of one process that holds the whole model and takes the same
/// step: forward, loss, backward, clipping, update. Gradients left over from before do not matter.
/// `batch`: the same shape on every rank. The first stage reads its tokens, the last one its
///     targets, the others neither.
/// `loss`: called once, on the last stage.
/// `max_gradient_norm`: of the *whole* model's gradient, of which each rank knows its part only:
///     call lab::clip_gradients(stage, max_gradient_norm, pipeline) on all ranks. 0: do not clip,
///     and send nothing for it.
/// Returns the loss on the last stage, 0 on the others. Besides what clipping needs, only the
/// messages of forward and backward travel.
double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::TokenBatch& batch,
                  const LossFunction& loss, float learning_rate, double max_gradient_norm,
                  lab::ProcessGroup& pipeline);

}  // namespace lab04
