// Lab 04 · one model cut over several ranks: one forward pass, then one backward pass, of the whole
// batch. This is the contract; you write pipeline_1f1b.cpp.
//
// Rank r of `pipeline` is stage r: it holds the weights of its own layers and nothing else. All
// ranks call all functions but `split` in the same order, with batches of the same shape, and with
// the same learning rates and limits. No function keeps anything from one call to the next:
// its results depend only on its arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/config.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"

namespace lab04 {

/// Task 1 · The forward pass, through all stages.
///
/// The first stage embeds the tokens of `batch` [B, T]. Every other stage receives its input, the
/// hidden states [B, T, C], from the stage upstream. Every stage but the last sends its output to
/// the stage downstream. Each of these tensors is one message, and there are no others; C is
/// stage.config().dim. Here and in `backward`, the batch is the stage's microbatch 0, and messages
/// have the tag 0; both are the defaults.
/// `batch`: the same shape on every rank, B and T at least 1; only the first stage may use its
///     tokens.
/// Returns the output of this stage. Its numbers are those that one process with the whole model
/// computes there, even at padded positions. On the last stage it is the logits [B, T, V]; they are
/// not sent. The stage keeps its activations for `backward`, the tensor given to stage.forward
/// among them: do not use its memory again before. stage.gradients() stays as it is.
lab::Tensor forward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
                    lab::ProcessGroup& pipeline);

/// Task 2 · The backward pass, through all stages, from the last to the first.
///
/// Every stage but the last receives the gradient of the loss with respect to its output, [B, T,
/// C], from the stage downstream. Every stage but the first sends the gradient with respect to its
/// input to the stage upstream. Each of these tensors is one message, and there are no others. The
/// gradients of the stage's own weights are added to stage.gradients().
/// `batch`: as for the forward pass; here only its shape matters.
/// `logits_gradient` [B, T, V]: on the last stage, the gradient that the loss computed; it may be
///     overwritten. Elsewhere an undefined tensor.
void backward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
              const lab::Tensor& logits_gradient, lab::ProcessGroup& pipeline);

/// Task 3 · Which part of the model each stage holds.
///
/// `layers`: how many the model has; all cost the same. The embedding costs nothing.
/// `stages`: how many parts to cut it into, between 1 and `layers`; you need not check that.
/// `head_cost`: the cost of the head in layers, 0 to 1,000,000; 0.8 means 80 % of a layer.
/// Returns one span per stage. Together they are the whole model: the layers in order, each of them
/// once, at least one on every stage; the first stage embeds, the last one has the head. The
/// slowest stage, counting its layers and the head if it has it, is as fast as possible: it sets
/// the pace of a full pipeline. If several splits are equally good, any of them is right.
std::vector<lab::StageSpan> split(int64_t layers, int stages, double head_cost);

/// Task 4 · Clipping by the norm of the whole model's gradient.
///
/// The norm is the root of the sum of squares over the gradients of all stages, each weight counted
/// once (a tied head occurs only if there is one stage). If it exceeds `max_norm`, all gradients of
/// all stages are multiplied by max_norm / norm. If not, not a bit of them changes.
/// `max_norm`: the same on every rank; it may be infinite, which never scales. Unless it is
///     positive (NaN is not), every rank throws lab::Error before it sends anything.
/// Squares are added in double, as lab::gradient_squares (common/optim/clip.h) does for one stage:
/// in float the square of 1e20 is infinite, and that of 1e-25 is 0. The ranks add up theirs with
/// one lab::sum_over (common/comm/agreement.h), which sends 8 bytes from each rank to every other,
/// and nothing if there is only one stage. There are no other messages.
/// Returns the norm before clipping, the same on every rank. If a gradient of any stage is infinite
/// or NaN, the norm is not finite either, and the gradients may then hold anything.
double clip_gradients(lab::LlamaStage& stage, double max_norm, lab::ProcessGroup& pipeline);

/// Lab 01's causal_lm_loss, as task 5 calls it: the sum of the cross-entropies of the batch,
/// divided by `total_targets`. It overwrites the logits with their gradient.
using lab::LossFunction;

/// Task 5 · One optimizer step of the whole pipeline.
///
/// The weights after it are those of one process that holds the whole model and takes the same
/// step: forward, loss, backward, clipping, update. Gradients left over from before do not matter.
/// `batch`: the same shape on every rank. The first stage reads its tokens, the last one its
///     targets. The others read neither.
/// `loss`: called once, on the last stage only, with batch.target_count() as `total_targets`. It is
///     called, and the weights are updated, even if the batch has no target; 0 is a valid total
///     (you may pass 1 instead). On the other stages, backward gets an undefined tensor.
/// `max_gradient_norm`: if it is positive (it may be infinite), all ranks call clip_gradients with
///     it, once. If it is 0, do not clip, and send nothing for it. It is never negative.
/// Returns the loss on the last stage, 0 on the others. Only the messages of forward, backward and
/// clipping travel.
double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::TokenBatch& batch,
                  const LossFunction& loss, float learning_rate, double max_gradient_norm,
                  lab::ProcessGroup& pipeline);

}  // namespace lab04
