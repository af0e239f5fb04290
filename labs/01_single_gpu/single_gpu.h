// Lab 01 · the training step on one device. This is the contract; you write single_gpu.cpp.
//
// No function keeps anything between calls: what it does depends only on its arguments.
#pragma once

#include <cstdint>
#include <span>

#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"

namespace lab01 {

/// Task 1a · Cross-entropy of one prediction, numerically stable.
///
/// `logits`: the V scores of one position, all finite; on return they hold the gradient of the
///     scaled loss, scale * (softmax(logits) - onehot(target)).
/// `target`: the token that actually came next, 0 <= target < V.
/// `scale`: factor of the gradient only.
/// Returns -log softmax(logits)[target], not scaled. For every finite input, including scores of
/// +-10,000, it is finite, with an error of at most 1e-5 * max(1, loss), even where thousands of
/// small exponentials are added to a large one. The gradient is accurate to
/// scale * (1e-5 * (softmax + onehot) + 1e-7); `scale` is not negative, and may be 0.
/// Called by several threads at once, each with a different row: touch nothing but the span.
double cross_entropy(std::span<float> logits, int32_t target, float scale);

/// Task 1b · The causal language-model loss of one microbatch.
///
/// `logits` [B, T, V], contiguous: position t of row b holds the scores for token t+1 of that row;
///     on return they hold the gradient of the returned value. Positions that predict nothing (the
///     last of each row, and those whose next token is lab::kPadding) get a gradient of zero,
///     whatever their scores are.
/// `batch` [B, T]: the tokens that went in; B and T are at least 1.
/// `total_targets`: what the sum is divided by. In a training step: the number of targets of the
///     whole step, over all its microbatches; 0 if it has none. Any positive number may be
///     passed, even one smaller than this microbatch's number of targets.
/// Returns the sum of the cross-entropies of this microbatch, divided by `total_targets`: over all
/// microbatches of a step these values add up to the mean over all targets. 0 for a microbatch
/// without targets. Accepted errors, beyond those of cross_entropy: 1e-5 of the value, however many
/// targets there are, and 1e-5 / total_targets in the gradient. The same arguments give the same
/// bits, whatever the threads do.
double causal_lm_loss(const lab::Tensor& logits, const lab::TokenBatch& batch,
                      int64_t total_targets);

/// Task 2 · The Adam update (Kingma and Ba, 2015, algorithm 1).
///
/// `config`: its epsilon is positive.
/// `step`: number of this update, counted from 1.
/// All spans have equal length. `parameters` and both moments are updated in place. Called on
/// blocks of the weights by several threads at once: touch nothing but the spans.
///
/// Float is accurate enough throughout. Accepted errors, for betas from 0 to below 1, any step,
/// gradients of 1e-17 to 1e17 in size, or 0, and moments that such gradients leave:
///   - first moment: 1e-6 * (|old moment| + |gradient|); second moment: the same with the
///     gradient's square;
///   - weight: its rounding to float, and 2e-4 of the change that it would make if both terms of
///     the first moment had the same sign.
void adam_update(const lab::AdamConfig& config, float learning_rate, int64_t step,
                 std::span<float> parameters, std::span<const float> gradients,
                 std::span<float> first_moment, std::span<float> second_moment);

/// What task 1b's function looks like to task 3.
using lab::LossFunction;

/// Task 3 · One optimizer step over one or more microbatches (gradient accumulation).
///
/// Afterwards the weights are those of one step on all sequences at once: every target counts the
/// same, even if microbatches have different numbers of targets. Gradients left over from before
/// have no effect. Microbatches may differ in their shapes. Each of them, even one without targets,
/// has its backward pass before the forward pass of the next, so that the activations of only one
/// are in memory.
/// `loss`: what to call, once per microbatch, instead of your own causal_lm_loss by name.
/// `max_gradient_norm`: if it is positive, clip the accumulated gradient to this norm with
///     lab::clip_gradients. If it is 0, do not clip. It is never negative.
/// model.gradients() still holds the gradient, as the optimizer got it, when the step returns.
/// Returns the loss of this step: the mean cross-entropy over all targets, in nats, before the
/// update, which is the sum of what `loss` has returned. A step without any target is an update
/// like any other, with gradients of 0 and loss 0 (you may then pass `loss` a total of 1 instead of
/// 0).
double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm);

}  // namespace lab01
