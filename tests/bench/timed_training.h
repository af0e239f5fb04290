// A model in training on random tokens, whose steps are timed.
#pragma once

#include <cstdint>
#include <random>
#include <span>

#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/run/training/training_functions.h"
#include "common/tensor/accelerator.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/bench/matmul_rate.h"

namespace lab::bench {

class TimedTraining {
 public:
  TimedTraining(const LlamaConfig& config, int64_t batch, Device device)
      : functions_(training_functions(device)),
        model_(config, StageSpan::whole(config), device, 1),
        optimizer_(model_.parameters().numel(), AdamConfig{}, functions_.adam, 0.0F, device),
        tokens_{batch, config.context, {}} {
    tokens_.tokens.resize(static_cast<size_t>(batch * config.context));
  }

  /// Seconds of one step, until the weights are updated.
  double step() {
    draw_tokens();
    return seconds([&] {
      lab01::train_step(model_, optimizer_, std::span(&tokens_, 1), functions_.loss, 8e-4F, 0.0);
      wait();
    });
  }

  /// The share of one step in which the host did nothing but wait for the GPU, after the forward
  /// pass and at the end: so long at least was the GPU busy. The step is train_step's, in parts.
  double share_of_waiting() {
    draw_tokens();
    double waited = 0.0;
    const double whole = seconds([&] {
      model_.zero_gradients();
      const Tensor logits = model_.forward(tokens_);
      waited += wait();
      functions_.loss(logits, tokens_, tokens_.target_count());
      model_.backward(logits);
      optimizer_.step(model_.parameters(), model_.gradients(), 8e-4F);
      waited += wait();
    });
    return waited / whole;
  }

  int64_t parameter_count() const { return model_.parameter_count(); }

 private:
  void draw_tokens() {
    const auto vocab = static_cast<uint64_t>(model_.config().vocab_size);
    for (int32_t& token : tokens_.tokens) token = static_cast<int32_t>(random_() % vocab);
  }

  /// Waits for the GPU, if it is one; returns for how long.
  double wait() const {
    if (model_.device() == Device::kCpu) return 0.0;
    return seconds([] { accelerator().synchronize(); });
  }

  TrainingFunctions functions_;
  LlamaStage model_;
  Adam optimizer_;
  TokenBatch tokens_;
  std::mt19937_64 random_{1};
};

}  // namespace lab::bench
