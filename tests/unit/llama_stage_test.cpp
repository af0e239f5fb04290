// LlamaStage: initial values, stages against the whole model, several microbatches in flight,
// memory, and what it refuses. Numbers are compared with PyTorch's in golden_test.cpp.
#include "common/model/llama_stage.h"

#include <gtest/gtest.h>

#include <functional>

#include "common/error.h"
#include "common/ops/ops.h"
#include "tests/unit/numeric.h"

namespace lab::llama_stage_test {
namespace {

using test::random_tensor;
using test::to_doubles;

LlamaConfig tiny() {
  LlamaConfig c;
  c.vocab_size = 11;
  c.dim = 8;
  c.heads = 2;
  c.kv_heads = 1;
  c.layers = 3;
  c.hidden_dim = 12;
  c.context = 6;
  c.init_std = 0.3F;
  return c;
}

LlamaStage whole(const LlamaConfig& c, uint64_t seed = 1) {
  return {c, StageSpan::whole(c), Device::kCpu, seed};
}

TokenBatch batch(std::vector<int32_t> tokens, int64_t rows) {
  const auto length = static_cast<int64_t>(tokens.size()) / rows;
  return {rows, length, std::move(tokens)};
}

const Parameter& named(const LlamaStage& stage, const std::string& name) {
  for (const Parameter& p : stage.named_parameters())
    if (p.name == name) return p;
  throw std::runtime_error("no parameter " + name);
}

/// One forward and backward pass with a made-up gradient of the logits.
void run(LlamaStage& model, const TokenBatch& tokens, int microbatch = 0) {
  const Tensor logits = model.forward(tokens, microbatch);
  model.backward(random_tensor(logits.shape(), 5), microbatch);
}

TEST(LlamaStage, ParameterCountIsTheFormula) {
  const LlamaConfig c = LlamaConfig{};
  // 2 V C + L (4 C^2 + 3 C H + 2 C) + C
  EXPECT_EQ(whole(c).parameter_count(),
            2 * 4096 * 288 + 6 * (4 * 288 * 288 + 3 * 288 * 1152 + 2 * 288) + 288);
}

TEST(LlamaStage, InitialValuesDependOnSeedAndName) {
  const LlamaConfig c = tiny();
  const LlamaStage a = whole(c, 1);
  const LlamaStage again = whole(c, 1);
  const LlamaStage other = whole(c, 2);
  EXPECT_TRUE(test::same_bits(a.parameters(), again.parameters()));
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  EXPECT_FALSE(test::same_bits(named(a, name).value, named(other, name).value));
  EXPECT_FALSE(
      test::same_bits(named(a, name).value, named(a, "model.layers.2.mlp.up_proj.weight").value));
  for (float w : named(a, "model.norm.weight").value.values()) EXPECT_EQ(w, 1.0F);

  const LlamaStage middle(c, {.first_layer = 1, .last_layer = 2}, Device::kCpu, 1);
  for (const Parameter& p : middle.named_parameters())
    EXPECT_TRUE(test::same_bits(p.value, named(a, p.name).value)) << p.name;
}

TEST(LlamaStage, InitialValuesHaveTheRightSpread) {
  LlamaConfig c;
  c.layers = 1;
  const LlamaStage model = whole(c);
  double sum = 0.0;
  double squares = 0.0;
  const auto values = named(model, "lm_head.weight").value.values();
  for (float v : values) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 1e-4);
  EXPECT_NEAR(std::sqrt(squares / count), 0.02, 1e-4);
}

TEST(LlamaStage, TheEmbeddingMayStartLargerThanOtherWeights) {
  LlamaConfig c = tiny();
  const LlamaStage plain = whole(c);
  c.embedding_scale = 8;  // a power of two: exact
  const LlamaStage scaled = whole(c);
  for (const Parameter& p : scaled.named_parameters()) {
    const Tensor expected = named(plain, p.name).value.clone();
    if (p.name == "model.embed_tokens.weight") scale(expected, 8);
    EXPECT_TRUE(test::same_bits(p.value, expected)) << p.name;
  }
  c.tied_head = true;
  EXPECT_THROW(whole(c), Error) << "a tied head's logits would start eight times too large";
}

TEST(LlamaStage, StagesInARowEqualTheWholeBitForBit) {
  for (const bool tied : {false, true}) {
    LlamaConfig c = tiny();
    c.tied_head = tied;
    LlamaStage model = whole(c);
    LlamaStage first(c, {.first_layer = 0, .last_layer = 1, .embeds = true}, Device::kCpu, 1);
    LlamaStage last(c, {.first_layer = 1, .last_layer = 3, .has_head = true}, Device::kCpu, 1);
    const TokenBatch tokens = batch({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 2);

    const Tensor expected = model.forward(tokens).clone();
    const Tensor logits = last.forward(first.forward(tokens));
    EXPECT_TRUE(test::same_bits(logits, expected));

    const Tensor gradient = random_tensor(expected.shape(), 3);
    EXPECT_FALSE(model.backward(gradient.clone()).defined()) << "tokens have no gradient";
    first.backward(last.backward(gradient));
    for (LlamaStage* stage : {&first, &last})
      for (const Parameter& p : stage->named_parameters()) {
        if (tied && (p.name == "lm_head.weight" || p.name == "model.embed_tokens.weight")) continue;
        EXPECT_TRUE(test::same_bits(p.gradient, named(model, p.name).gradient)) << p.name;
      }
    if (tied) {  // the two halves of a tied gradient, added once
      model.gradients();
      const Tensor sum = named(first, "model.embed_tokens.weight").gradient.clone();
      const auto head = named(last, "lm_head.weight").gradient.values();
      for (size_t i = 0; i < head.size(); ++i) sum.values()[i] += head[i];
      EXPECT_TRUE(test::same_bits(sum, named(model, "model.embed_tokens.weight").gradient));
    }
  }
}

TEST(LlamaStage, MicrobatchesInFlightDoNotDisturbEachOther) {
  const LlamaConfig c = tiny();
  const TokenBatch tokens[] = {batch({1, 2, 3}, 1), batch({4, 5, 6}, 1), batch({7, 8, 9}, 1)};
  LlamaStage one_by_one = whole(c);
  for (int i : {2, 0, 1}) run(one_by_one, tokens[i]);

  LlamaStage in_flight = whole(c);
  std::vector<Tensor> logits;
  for (int i = 0; i < 3; ++i) logits.push_back(in_flight.forward(tokens[i], i));
  for (int i : {2, 0, 1}) in_flight.backward(random_tensor(logits[0].shape(), 5), i);
  EXPECT_TRUE(test::same_bits(in_flight.gradients(), one_by_one.gradients()));
}

TEST(LlamaStage, GradientsAddUpUntilZeroed) {
  const LlamaConfig c = tiny();
  LlamaStage model = whole(c);
  run(model, batch({1, 2, 3}, 1));
  const test::Doubles once = to_doubles(model.gradients());
  run(model, batch({1, 2, 3}, 1));
  test::expect_near(model.gradients(), test::plus(once, once), 1e-6, "twice the gradient");
  model.zero_gradients();
  EXPECT_EQ(to_doubles(model.gradients()), test::Doubles(once.size(), 0.0));
}

TEST(LlamaStage, PaddingBehindASequenceChangesNothing) {
  const LlamaConfig c = tiny();
  LlamaStage model = whole(c);
  const Tensor alone = model.forward(batch({1, 2, 3}, 1)).clone();
  model.discard();
  const Tensor padded = model.forward(batch({1, 2, 3, kPadding, kPadding}, 1));
  test::expect_near(padded.view({5, 11}).rows(0, 3), to_doubles(alone), 1e-6, "logits");
  for (float x : padded.values()) EXPECT_TRUE(std::isfinite(x));
}

TEST(LlamaStage, EmptyBatchAndLengthOne) {
  const LlamaConfig c = tiny();
  LlamaStage model = whole(c);
  EXPECT_EQ(model.forward(TokenBatch{0, 4, {}}).shape(), (Shape{0, 4, 11}));
  model.backward(Tensor::zeros({0, 4, 11}));
  EXPECT_EQ(model.forward(batch({3}, 1)).shape(), (Shape{1, 1, 11}));
}

TEST(LlamaStage, CountsTheActivationsInFlight) {
  const LlamaConfig c = tiny();
  LlamaStage model = whole(c);
  EXPECT_EQ(model.activation_bytes(), 0U);
  model.forward(batch({1, 2}, 1), 0);
  const size_t one = model.activation_bytes();
  EXPECT_GT(one, 0U);
  model.forward(batch({1, 2}, 1), 1);
  EXPECT_EQ(model.activation_bytes(), 2 * one);
  model.discard(0);
  model.discard(1);
  EXPECT_EQ(model.activation_bytes(), 0U);
  EXPECT_EQ(model.peak_activation_bytes(), 2 * one);
}

TEST(LlamaStage, DecodingTokenByTokenGivesTheLogitsOfForward) {
  const LlamaConfig c = tiny();
  LlamaStage model = whole(c);
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9};
  const Tensor expected = model.forward(batch(tokens, 1)).view({6, 11});
  const auto cache = model.new_cache();
  for (int64_t t = 0; t < 6; ++t)
    test::expect_near(model.decode(std::span(tokens).subspan(static_cast<size_t>(t), 1), *cache),
                      to_doubles(expected.rows(t, t + 1)), 1e-5, "token by token");
  EXPECT_THROW(model.decode(std::vector<int32_t>{1}, *cache), Error) << "the context is full";

  const auto prompt = model.new_cache();
  model.decode(std::span(tokens).first(4), *prompt);
  test::expect_near(model.decode(std::span(tokens).subspan(4), *prompt),
                    to_doubles(expected.rows(5, 6)), 1e-5, "prompt in two pieces");
}

TEST(LlamaStage, TheCacheGrowsWithTheStory) {
  LlamaConfig c = tiny();
  c.context = 700;  // more than the cache has room for at first, and when it has grown once
  LlamaStage model = whole(c);
  std::vector<int32_t> tokens;
  for (int32_t t = 0; t < 700; ++t) tokens.push_back(t * t % 11);
  const Tensor expected = model.forward(batch(tokens, 1)).view({700, 11});
  const auto cache = model.new_cache();
  for (int64_t t = 0; t < 700; ++t)
    test::expect_near(model.decode(std::span(tokens).subspan(static_cast<size_t>(t), 1), *cache),
                      to_doubles(expected.rows(t, t + 1)), 1e-5, "token by token");
  EXPECT_THROW(model.decode(std::vector<int32_t>{1}, *cache), Error) << "the context is full";
}

/// Which gradients a backward pass announces, each compared with its value at the end of the pass.
std::vector<size_t> announced(LlamaStage& stage, const std::function<void()>& backward) {
  std::vector<size_t> order;
  std::vector<Tensor> seen;
  stage.when_gradient_ready([&](size_t parameter) {
    order.push_back(parameter);
    seen.push_back(stage.named_parameters().at(parameter).gradient.clone());
  });
  backward();
  stage.when_gradient_ready({});
  for (size_t i = 0; i < order.size(); ++i)
    EXPECT_TRUE(test::same_bits(seen[i], stage.named_parameters()[order[i]].gradient))
        << stage.named_parameters()[order[i]].name << " was written later";
  return order;
}

std::vector<size_t> last_to_first(const LlamaStage& stage) {
  std::vector<size_t> order(stage.named_parameters().size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  return order;
}

TEST(LlamaStage, AnnouncesEveryGradientOnceTheLastLayerFirst) {
  for (const bool tied : {false, true}) {
    LlamaConfig c = tiny();
    c.tied_head = tied;
    LlamaStage model = whole(c);
    LlamaStage silent = whole(c);
    for (int microbatch : {0, 1, 2}) {  // gradients add up
      const TokenBatch tokens = batch({1, 2, 3, 4 + microbatch}, 2);
      EXPECT_EQ(announced(model, [&] { run(model, tokens, microbatch); }), last_to_first(model));
      run(silent, tokens, microbatch);
    }
    test::expect_near(model.gradients(), to_doubles(silent.gradients()), 1e-5, "gradients");
    EXPECT_TRUE(tied || test::same_bits(model.gradients(), silent.gradients()));
  }
}

TEST(LlamaStage, StagesAnnounceWhatTheyHold) {
  const LlamaConfig c = tiny();
  const StageSpan spans[] = {{.first_layer = 0, .last_layer = 1, .embeds = true},
                             {.first_layer = 1, .last_layer = 2},
                             {.first_layer = 2, .last_layer = 3, .has_head = true},
                             {.first_layer = 3, .last_layer = 3, .has_head = true}};
  for (const StageSpan& span : spans) {
    LlamaStage stage(c, span, Device::kCpu, 1);
    const auto pass = [&] {
      const Tensor output = span.embeds ? stage.forward(batch({1, 2, 3}, 1))
                                        : stage.forward(random_tensor({1, 3, c.dim}, 2));
      stage.backward(random_tensor(output.shape(), 5));
    };
    EXPECT_EQ(announced(stage, pass), last_to_first(stage));
  }
}

TEST(LlamaStage, RefusesWhatCannotBe) {
  const LlamaConfig c = tiny();
  LlamaStage model = whole(c);
  EXPECT_THROW(model.forward(batch({11}, 1)), Error) << "token outside the vocabulary";
  EXPECT_THROW(model.forward(batch({-2}, 1)), Error);
  EXPECT_THROW(model.forward(batch({1, 1, 1, 1, 1, 1, 1}, 1)), Error) << "longer than the context";
  EXPECT_THROW(model.forward(Tensor::zeros({1, 2, 8})), Error) << "needs tokens";
  EXPECT_THROW(model.backward(Tensor::zeros({1, 2, 11})), Error) << "no forward yet";
  model.forward(batch({1, 2}, 1));
  EXPECT_THROW(model.forward(batch({1, 2}, 1)), Error) << "microbatch 0 is in flight";
  EXPECT_THROW(model.backward(Tensor::zeros({1, 2, 8})), Error) << "gradient of another shape";

  EXPECT_THROW(LlamaStage(c, {.first_layer = 2, .last_layer = 4}, Device::kCpu, 1), Error);
  LlamaConfig odd = c;
  odd.heads = 3;
  EXPECT_THROW(whole(odd), Error);
}

}  // namespace
}  // namespace lab::llama_stage_test
