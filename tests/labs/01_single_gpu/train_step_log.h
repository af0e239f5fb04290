// What a training step does to its loss function and its optimizer, on record.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/optim/optimizer.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/labs/01_single_gpu/reference.h"

namespace lab01 {

/// Passes updates on, and keeps what came in.
class RecordingOptimizer final : public lab::Optimizer {
 public:
  struct Update {
    lab::Tensor gradients;
    float learning_rate = 0;
  };

  explicit RecordingOptimizer(std::unique_ptr<lab::Optimizer> inner) : inner_(std::move(inner)) {}

  void step(const lab::Tensor& parameters, const lab::Tensor& gradients,
            float learning_rate) override {
    updates_.push_back({gradients.clone(), learning_rate});
    inner_->step(parameters, gradients, learning_rate);
    steps_ = inner_->steps();
  }

  const std::vector<Update>& updates() const { return updates_; }
  void clear() { updates_.clear(); }

 private:
  std::unique_ptr<lab::Optimizer> inner_;
  std::vector<Update> updates_;
};

/// The `total_targets` of every call of recording_loss. Global, since the loss that train_step
/// takes is a plain function.
inline std::vector<double>& loss_totals() {
  static std::vector<double> totals;
  return totals;
}

inline double recording_loss(const lab::Tensor& logits, const lab::TokenBatch& batch,
                             int64_t total_targets) {
  loss_totals().push_back(static_cast<double>(total_targets));
  return reference::causal_lm_loss(logits, batch, total_targets);
}

}  // namespace lab01
