// Correct functions of lab 01 for the tests of all labs: what training steps are given, and what
// oracles compute with. Rank programs and verdicts call the same ones, so that equal bits can be
// promised.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/data/batch.h"
#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"

namespace lab::grading {

/// As lab01::causal_lm_loss: the sum of the cross-entropies divided by `total_targets`; the logits
/// become its gradient.
double reference_loss(const Tensor& logits, const TokenBatch& batch, int64_t total_targets);

/// `factor` times as much, and so is the gradient.
double scaled_reference_loss(const Tensor& logits, const TokenBatch& batch, int64_t total_targets,
                             double factor);

/// "sgd"; or "adam", with a large epsilon: with a small one a gradient near zero, which is all
/// rounding, would decide about the whole length of a weight's step.
std::unique_ptr<Optimizer> reference_optimizer(const std::string& name, int64_t size);

}  // namespace lab::grading
