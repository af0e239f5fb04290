// What a training step calls, on record: its loss, the averaging, its optimizer.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/optim/optimizer.h"
#include "labs/01_single_gpu/single_gpu.h"

namespace lab02 {

struct StepLog {
  std::string events;          // "loss loss average update"
  std::vector<double> totals;  // the `total_targets` of every call of the loss
};

/// Of this rank, since the loss that train_step takes is a plain function. Simulated ranks are
/// threads.
inline StepLog& step_log() {
  thread_local StepLog log;
  return log;
}

inline void log_event(const std::string& name) {
  std::string& events = step_log().events;
  events += (events.empty() ? "" : " ") + name;
}

inline double recording_loss(const lab::Tensor& logits, const lab::TokenBatch& batch,
                             int64_t total_targets) {
  log_event("loss");
  step_log().totals.push_back(static_cast<double>(total_targets));
  return lab01::causal_lm_loss(logits, batch, total_targets);
}

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
    log_event("update");
    updates_.push_back({gradients.clone(), learning_rate});
    inner_->step(parameters, gradients, learning_rate);
    steps_ = inner_->steps();
  }
  std::vector<State> state() const override { return inner_->state(); }

  const std::vector<Update>& updates() const { return updates_; }
  void clear() { updates_.clear(); }

 private:
  std::unique_ptr<lab::Optimizer> inner_;
  std::vector<Update> updates_;
};

}  // namespace lab02
