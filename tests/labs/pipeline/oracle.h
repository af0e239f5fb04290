// The oracle: one process with the whole model, which takes lab 01's steps. For rank programs.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "common/grading/parcel.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/labs/02_gradient_allreduce/step_log.h"
#include "tests/labs/pipeline/packed.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace pipeline_tests {

/// A large epsilon: with a small one a gradient near zero, which is all rounding, would decide
/// about the whole length of a weight's step.
inline std::unique_ptr<lab::Optimizer> make_optimizer(const std::string& name, int64_t size) {
  if (name == "sgd") return std::make_unique<lab::Sgd>();
  return std::make_unique<lab::Adam>(size, lab::AdamConfig{.epsilon = 1e-2F}, lab01::adam_update);
}

inline std::string tokens_entry(int step, int microbatch) {
  return fmt::format("tokens.{}.{}", step, microbatch);
}

inline std::vector<lab::TokenBatch> microbatches(const lab::grading::Parcel& input, int step) {
  std::vector<lab::TokenBatch> batches;
  for (int k = 0; k < static_cast<int>(input.number("microbatches")); ++k)
    batches.push_back(input.batch(tokens_entry(step, k)));
  return batches;
}

/// Leaves the logits as they are.
inline double loss_of_a_copy(const lab::Tensor& logits, const lab::TokenBatch& batch,
                             int64_t total_targets) {
  return lab01::causal_lm_loss(logits.clone(), batch, total_targets);
}

/// Input: "steps"; "microbatches", of each step; their tokens, see `tokens_entry`; "optimizer";
/// "learning_rate"; "max_norm"; optionally "loss_of_a_copy", for the results of that mistake.
/// Leaves for every step S "loss.S", the packed "gradients.S" that the optimizer got, "weights.S"
/// after it; and "start", the weights before the first.
inline lab::grading::Parcel run_oracle(const lab::grading::Parcel& input) {
  lab::LlamaStage model = make_whole_model();
  lab02::RecordingOptimizer optimizer(
      make_optimizer(input.text("optimizer"), model.parameters().numel()));
  lab::grading::Parcel result;
  describe(model, result);
  result.set("start", packed(model, model.parameters()));
  for (int step = 0; step < static_cast<int>(input.number("steps")); ++step) {
    optimizer.clear();
    const double loss = lab01::train_step(
        model, optimizer, microbatches(input, step),
        input.has("loss_of_a_copy") ? loss_of_a_copy : lab01::causal_lm_loss,
        static_cast<float>(input.number("learning_rate")), input.number("max_norm"));
    result.set(fmt::format("loss.{}", step), loss);
    result.set(fmt::format("gradients.{}", step), packed(model, optimizer.updates()[0].gradients));
    result.set(fmt::format("weights.{}", step), packed(model, model.parameters()));
  }
  return result;
}

}  // namespace pipeline_tests
