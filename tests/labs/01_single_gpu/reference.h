// Lab 01's formulas in float64, written for clarity, not speed: what the verdict compares with, and
// what stands in for a task when another one is tested.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/data/batch.h"
#include "common/tensor/tensor.h"

namespace lab01::reference {

/// Softmax of one position, and log sum exp(scores).
struct Softmax {
  explicit Softmax(std::span<const float> scores);
  std::vector<double> probabilities;
  double log_sum_exp = 0;
};

/// The contract of lab01::cross_entropy.
double cross_entropy(std::span<float> logits, int32_t target, double scale);

/// The contract of lab01::causal_lm_loss.
double causal_lm_loss(const lab::Tensor& logits, const lab::TokenBatch& batch,
                      int64_t total_targets);

}  // namespace lab01::reference
