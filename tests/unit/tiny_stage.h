// A tiny model, and a microbatch for it.
#pragma once

#include "common/model/llama_stage.h"
#include "tests/unit/numeric.h"

namespace lab::test {

inline LlamaConfig tiny() {
  LlamaConfig c;
  c.vocab_size = 37;
  c.dim = 24;
  c.heads = 4;
  c.kv_heads = 2;
  c.layers = 3;
  c.hidden_dim = 40;
  c.context = 19;
  c.init_std = 0.2F;
  return c;
}

inline TokenBatch random_batch(uint64_t seed, int64_t rows = 2, int64_t length = 19) {
  TokenBatch batch{rows, length, {}};
  const Tensor numbers = random_tensor({rows * length}, seed);
  for (float x : numbers.values()) batch.tokens.push_back(static_cast<int32_t>((x + 1.0F) * 18.0F));
  batch.tokens.back() = kPadding;
  return batch;
}

inline LlamaStage whole(Device device, const LlamaConfig& config = tiny()) {
  return {config, StageSpan::whole(config), device, 7};
}

}  // namespace lab::test
