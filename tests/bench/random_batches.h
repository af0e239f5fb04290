// Batches to time training with.
#pragma once

#include <random>
#include <vector>

#include "common/data/batch.h"
#include "common/model/config.h"

namespace lab::bench {

/// `count` microbatches [batch, config.context] of random tokens, the same at every call.
inline std::vector<TokenBatch> random_batches(const LlamaConfig& config, int64_t count,
                                              int64_t batch) {
  std::mt19937_64 random(1);
  std::vector<TokenBatch> result;
  for (int64_t i = 0; i < count; ++i) {
    TokenBatch tokens{batch, config.context, {}};
    for (int64_t t = 0; t < batch * config.context; ++t)
      tokens.tokens.push_back(
          static_cast<int32_t>(random() % static_cast<uint64_t>(config.vocab_size)));
    result.push_back(std::move(tokens));
  }
  return result;
}

}  // namespace lab::bench
