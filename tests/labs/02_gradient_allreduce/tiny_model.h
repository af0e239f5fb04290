// The model of the tests: small enough for milliseconds, with every kind of weight.
#pragma once

#include <cstdint>

#include "common/model/llama_stage.h"

namespace lab02 {

inline constexpr int64_t kVocab = 24;
inline constexpr int64_t kContext = 8;

/// Large initial values, so that the gradients of all weights are well above rounding.
inline lab::LlamaStage tiny_model(uint64_t seed = 7) {
  const lab::LlamaConfig config{.vocab_size = kVocab,
                                .dim = 16,
                                .heads = 2,
                                .kv_heads = 1,
                                .layers = 2,
                                .hidden_dim = 24,
                                .context = kContext,
                                .init_std = 0.3F};
  return {config, lab::StageSpan::whole(config), lab::Device::kCpu, seed};
}

}  // namespace lab02
