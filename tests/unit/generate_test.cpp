// Telling stories: the same text with and without cache, reproducible, and every reason to stop.
#include "common/run/generation/generate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/error.h"
#include "common/run/options/run_plan.h"
#include "common/tensor/parallel.h"

namespace lab::generate_test {
namespace {

constexpr int64_t kContext = 24;
const char* const kPrompt = "Once upon a time";

LlamaConfig config_for(const Tokenizer& tokenizer) {
  LlamaConfig config;
  config.vocab_size = tokenizer.vocab_size();
  config.dim = 16;
  config.heads = 2;
  config.kv_heads = 1;
  config.layers = 2;
  config.hidden_dim = 32;
  config.context = kContext;
  return config;
}

class GenerateTest : public testing::Test {
 protected:
  void SetUp() override { set_thread_count(1); }  // more would only wait for one another
  void TearDown() override { set_thread_count(0); }

  // Makes `token` the most likely one everywhere: layers that add nothing to an embedding of ones,
  // and a head in which only the row of this token is not zero.
  void always_say(int32_t token) {
    for (const auto& [name, value, gradient] : model_.named_parameters()) {
      if (name == "model.embed_tokens.weight") value.fill(1.0F);
      if (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight")) value.fill(0.0F);
      if (name != "lm_head.weight") continue;
      value.fill(0.0F);
      value.rows(token, token + 1).fill(1.0F);
    }
  }

  std::string greedy(int64_t max_tokens) const {
    GenerateOptions options{.prompt = kPrompt, .max_tokens = max_tokens, .sampling = {}};
    options.sampling.temperature = 0.0;
    return generate(model_, tokenizer_, options);
  }

  /// The prompt, and so many times this token.
  std::string prompt_and(int64_t times, int32_t token) const {
    std::vector<int32_t> tokens = tokenizer_.encode(kPrompt);
    tokens.insert(tokens.end(), static_cast<size_t>(times), token);
    return tokenizer_.decode(tokens);
  }

  Tokenizer tokenizer_{default_plan().tokenizer};
  LlamaStage model_{config_for(tokenizer_), StageSpan::whole(config_for(tokenizer_)), Device::kCpu,
                    /*seed=*/5};
};

TEST_F(GenerateTest, StopsWhereTheStoryEnds) {
  always_say(tokenizer_.eos());
  EXPECT_EQ(greedy(100), kPrompt);
}

TEST_F(GenerateTest, StopsAfterMaxTokens) {
  const int32_t dog = tokenizer_.encode("the dog").back();
  always_say(dog);
  EXPECT_EQ(greedy(3), prompt_and(3, dog));
  EXPECT_EQ(greedy(0), kPrompt);
}

TEST_F(GenerateTest, StopsWhenTheContextIsFull) {
  const int32_t dog = tokenizer_.encode("the dog").back();
  always_say(dog);
  const auto prompt = static_cast<int64_t>(tokenizer_.encode(kPrompt).size()) + 1;  // with BOS
  // The last token needs no place in the context: nothing follows it.
  EXPECT_EQ(greedy(1000), prompt_and(kContext - prompt + 1, dog));
}

TEST_F(GenerateTest, TheCacheChangesNothing) {
  std::vector<int32_t> tokens = tokenizer_.encode(kPrompt);
  tokens.insert(tokens.begin(), tokenizer_.bos());
  for (int i = 0; i < 8; ++i) {
    const auto length = static_cast<int64_t>(tokens.size());
    const Tensor logits = model_.forward({.batch = 1, .length = length, .tokens = tokens});
    const auto last = logits.view({length, tokenizer_.vocab_size()}).rows(length - 1, length);
    const auto best = std::max_element(last.values().begin(), last.values().end());
    tokens.push_back(static_cast<int32_t>(best - last.values().begin()));
    model_.discard();
  }
  EXPECT_EQ(greedy(8), tokenizer_.decode(tokens));
}

TEST_F(GenerateTest, StreamsPromptAndTextAsTheyCome) {
  std::vector<std::string> pieces;
  GenerateOptions options{.prompt = kPrompt, .max_tokens = 12, .sampling = {}};
  const std::string story = generate(model_, tokenizer_, options,
                                     [&](std::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_GT(pieces.size(), 5U) << "text must come in pieces, not at the end";
  std::string joined;
  for (const std::string& piece : pieces) joined += piece;
  EXPECT_EQ(joined, story);
  EXPECT_TRUE(joined.starts_with(kPrompt));
}

TEST_F(GenerateTest, TheSeedDecides) {
  const auto story = [&](uint64_t seed) {
    GenerateOptions options{.prompt = "", .max_tokens = 15, .sampling = {}};
    options.sampling = {.temperature = 1.0, .top_p = 1.0, .seed = seed};
    return generate(model_, tokenizer_, options);
  };
  EXPECT_EQ(story(1), story(1));
  EXPECT_NE(story(1), story(2));
}

TEST_F(GenerateTest, RefusesWhatCannotWork) {
  GenerateOptions options;
  for (int i = 0; i < kContext; ++i) options.prompt += " dog";
  EXPECT_THROW(generate(model_, tokenizer_, options), Error);
  EXPECT_THROW(generate(model_, tokenizer_, {.prompt = "", .max_tokens = -1, .sampling = {}}),
               Error);
  LlamaConfig other = config_for(tokenizer_);
  other.vocab_size -= 1;
  const LlamaStage smaller(other, StageSpan::whole(other), Device::kCpu, 1);
  EXPECT_THROW(generate(smaller, tokenizer_, {}), Error);
}

}  // namespace
}  // namespace lab::generate_test
