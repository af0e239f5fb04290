// Lab 01 · the training step on one device. You write this file; single_gpu.h is its contract.
#include "labs/01_single_gpu/single_gpu.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/optim/clip.h"
#include "common/tensor/parallel.h"
#include "common/todo.h"

namespace lab01 {

double cross_entropy(std::span<float> logits, int32_t target, float scale) {
  // TODO(1a): the loss of one prediction; its gradient overwrites the logits.
  //  1. Find the largest score, M.
  //  2. Keep the target's score minus M, in double, before you overwrite anything.
  //  3. Replace each score z with exp(z - M), so that nothing overflows. Add these up in double.
  //  4. Turn them into scale * (softmax - onehot).
  //  5. Return the loss, without scale: log(sum), minus what you kept in step 2.
  lab::not_implemented("1a", "labs/01_single_gpu/single_gpu.cpp");
}

double causal_lm_loss(const lab::Tensor& logits, const lab::TokenBatch& batch,
                      int64_t total_targets) {
  // TODO(1b): the loss of a microbatch; its gradient overwrites the logits.
  //  1. For every row b and position t: which token is to be predicted? Is there one at all?
  //  2. If there is: call cross_entropy on the V scores of this position. With which scale does it
  //     leave the gradient of the value that you return?
  //  3. If there is none: the gradient of this position is zero.
  //  4. Return the sum of the cross-entropies, divided by total_targets; without targets, 0.
  lab::not_implemented("1b", "labs/01_single_gpu/single_gpu.cpp");
}

void adam_update(const lab::AdamConfig& config, float learning_rate, int64_t step,
                 std::span<float> parameters, std::span<const float> gradients,
                 std::span<float> first_moment, std::span<float> second_moment) {
  // TODO(2): one Adam update.
  //  1. Before the loop: the two bias corrections, 1 - beta^step.
  //  2. For every element: the new first moment, the new second moment, the new parameter.
  //     The moments are stored without correction.
  lab::not_implemented("2", "labs/01_single_gpu/single_gpu.cpp");
}

double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm) {
  // TODO(3): one optimizer step over all microbatches.
  //  1. Which number must be known before the first call of loss?
  //  2. Gradients of the previous step must have no effect.
  //  3. For every microbatch: forward, loss, backward. Gradients add up in the model.
  //  4. Clip the gradients if max_gradient_norm is above 0.
  //  5. Let the optimizer update the weights.
  //  6. Return the mean loss over all targets.
  lab::not_implemented("3", "labs/01_single_gpu/single_gpu.cpp");
}

}  // namespace lab01
