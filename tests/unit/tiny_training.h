// A model that is small enough for tests, and batches to train it on.
#pragma once

#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "labs/01_single_gpu/single_gpu.h"

namespace lab {

/// Two layers, with grouped queries.
inline LlamaConfig tiny_config() {
  LlamaConfig config;
  config.vocab_size = 11;
  config.dim = 16;
  config.heads = 4;
  config.kv_heads = 2;
  config.layers = 2;
  config.hidden_dim = 24;
  config.context = 12;
  return config;
}

/// A batch [2, 8] of a simple pattern that differs from step to step.
inline TokenBatch pattern_batch(int64_t step) {
  TokenBatch batch{.batch = 2, .length = 8, .tokens = {}};
  for (int64_t i = 0; i < batch.batch * batch.length; ++i)
    batch.tokens.push_back(static_cast<int32_t>((i * i + 3 * step) % 11));
  return batch;
}

/// One training step on the batch of that step; returns the loss.
inline double tiny_step(LlamaStage& model, Optimizer& optimizer, int64_t step) {
  const TokenBatch batch = pattern_batch(step);
  return lab01::train_step(model, optimizer, {&batch, 1}, lab01::causal_lm_loss, 0.01F, 1.0);
}

}  // namespace lab
