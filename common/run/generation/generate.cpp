#include "common/run/generation/generate.h"

#include <cstdio>
#include <vector>

#include "common/error.h"

namespace lab {

GenerateOptions story_of(const RunPlan& plan) {
  GenerateOptions story{.prompt = plan.prompt, .max_tokens = plan.story_tokens, .sampling = {}};
  story.sampling.seed = static_cast<uint64_t>(plan.seed);
  return story;
}

std::string generate(const LlamaStage& model, const Tokenizer& tokenizer,
                     const GenerateOptions& options,
                     const std::function<void(std::string_view)>& on_text) {
  const LlamaConfig& config = model.config();
  require(tokenizer.vocab_size() == config.vocab_size,
          "the model knows {} tokens, but the tokenizer {} has {}", config.vocab_size,
          tokenizer.path().string(), tokenizer.vocab_size());
  require(options.max_tokens >= 0, "max-tokens {} is negative", options.max_tokens);

  std::vector<int32_t> prompt = tokenizer.encode(options.prompt);
  prompt.insert(prompt.begin(), tokenizer.bos());
  require(static_cast<int64_t>(prompt.size()) <= config.context,
          "the prompt has {} tokens, but the model's context holds {}", prompt.size(),
          config.context);

  std::string text;
  Tokenizer::Stream stream(tokenizer);
  const auto emit = [&](int32_t token) {
    const std::string piece = stream.push(token);
    text += piece;
    if (on_text && !piece.empty()) on_text(piece);
  };
  for (const int32_t token : prompt) emit(token);

  TokenSampler sampler(options.sampling);
  const auto cache = model.new_cache();
  std::vector<int32_t> fresh = prompt;  // tokens that are not in the cache yet
  int64_t seen = 0;
  for (int64_t tokens = 0; tokens < options.max_tokens; ++tokens) {
    seen += static_cast<int64_t>(fresh.size());
    if (seen > config.context) break;
    const Tensor logits = model.decode(fresh, *cache).to(Device::kCpu);
    const int32_t token = sampler.pick(logits.values());
    if (token == tokenizer.eos()) break;
    emit(token);
    fresh = {token};
  }
  return text;
}

void print_text(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

void print_story(const LlamaStage& model, const Tokenizer& tokenizer, const RunPlan& plan) {
  if (plan.story_tokens == 0) return;
  fmt::print("\nA story:\n\n");
  generate(model, tokenizer, story_of(plan), print_text);
  fmt::print("\n");
}

}  // namespace lab
