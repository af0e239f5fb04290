// Golden files of tests/golden (made by make_golden.py with PyTorch), for the tests that use them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/data/batch.h"
#include "common/io/safetensors.h"
#include "common/model/config.h"
#include "common/model/llama_stage.h"
#include "common/tensor/tensor.h"

namespace lab {

/// Numbers as they come, rounded to tokens; `tokens` is [B, T].
inline TokenBatch token_batch(const Tensor& tokens) {
  TokenBatch batch{tokens.size(0), tokens.size(1), {}};
  for (float token : tokens.values()) batch.tokens.push_back(static_cast<int32_t>(token));
  return batch;
}

/// One golden file. `settings` is its entry of MODELS in make_golden.py.
struct Golden {
  explicit Golden(const std::string& name)
      : file(std::string(LAB_SOURCE_DIR) + "/tests/golden/" + name + ".safetensors"),
        settings(nlohmann::json::parse(file.metadata().at("settings"))),
        tokens(token_batch(file.read("tokens"))) {
    const nlohmann::json& from = settings.at("config");
    config.vocab_size = from.at("vocab_size");
    config.dim = from.at("hidden_size");
    config.heads = from.at("num_attention_heads");
    config.kv_heads = from.at("num_key_value_heads");
    config.layers = from.at("num_hidden_layers");
    config.hidden_dim = from.at("intermediate_size");
    config.context = from.at("max_position_embeddings");
    config.rope_theta = from.at("rope_theta");
    config.norm_eps = from.at("rms_norm_eps");
    config.tied_head = from.at("tie_word_embeddings");
  }

  /// A stage with the golden weights.
  LlamaStage stage(const StageSpan& span) const {
    LlamaStage stage(config, span, Device::kCpu, 1);
    for (const Parameter& parameter : stage.named_parameters())
      file.copy_to(stored_name(parameter.name), parameter.value);
    return stage;
  }
  LlamaStage whole() const { return stage(StageSpan::whole(config)); }

  /// A tied head that lies on another stage than the embedding is stored as the embedding.
  std::string stored_name(const std::string& name) const {
    return config.tied_head && name == "lm_head.weight" ? "model.embed_tokens.weight" : name;
  }

  SafetensorsFile file;
  nlohmann::json settings;
  LlamaConfig config;
  TokenBatch tokens;
};

/// max |actual - golden| / max |golden|; infinite if a number is not finite or
/// their counts differ.
inline double relative_difference(const Tensor& actual, const Tensor& golden) {
  if (actual.numel() != golden.numel()) return INFINITY;
  double difference = 0.0;
  double largest = 1e-30;
  for (size_t i = 0; i < golden.values().size(); ++i) {
    const double a = actual.values()[i];
    const double b = golden.values()[i];
    if (!std::isfinite(a)) return INFINITY;
    difference = std::max(difference, std::abs(a - b));
    largest = std::max(largest, std::abs(b));
  }
  return difference / largest;
}

/// Sum of the cross-entropies of position t against token t+1, divided by `total_targets`, in
/// float64; logits [B, T, V] become their gradient.
inline double reference_loss(const Tensor& logits, const TokenBatch& batch, int64_t total_targets) {
  const auto vocab = static_cast<size_t>(logits.size(-1));
  double loss = 0.0;
  for (int64_t row = 0; row < batch.batch * batch.length; ++row) {
    const std::span<float> scores =
        logits.values().subspan(static_cast<size_t>(row) * vocab, vocab);
    const bool is_last = (row + 1) % batch.length == 0;
    const int32_t target = is_last ? kPadding : batch.tokens[static_cast<size_t>(row) + 1];
    if (target == kPadding) {
      std::ranges::fill(scores, 0.0F);
      continue;
    }
    const double largest = *std::ranges::max_element(scores);
    double sum = 0.0;
    for (float score : scores) sum += std::exp(score - largest);
    const auto scale = 1.0 / static_cast<double>(total_targets);
    loss += (std::log(sum) + largest - scores[static_cast<size_t>(target)]) * scale;
    for (size_t v = 0; v < vocab; ++v) {
      const double probability = std::exp(scores[v] - largest) / sum;
      const double hit = v == static_cast<size_t>(target) ? 1.0 : 0.0;
      scores[v] = static_cast<float>((probability - hit) * scale);
    }
  }
  return loss;
}

}  // namespace lab
