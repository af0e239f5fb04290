// LlamaStage against PyTorch: logits, loss and all gradients of LlamaForCausalLM, for the whole
// model, for its stages, for several microbatches in flight, and token by token.
#include "tests/unit/golden.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/unit/numeric.h"

namespace lab::golden_test {
namespace {

constexpr double kTolerance = 1e-5;  // relative to the largest number of the tensor

class GoldenTest : public testing::TestWithParam<const char*> {
 protected:
  Golden golden_{GetParam()};

  void expect_golden_gradients(const LlamaStage& stage) const {
    stage.gradients();  // completes a tied head's gradient
    for (const Parameter& parameter : stage.named_parameters()) {
      const Tensor expected = golden_.file.read("gradient." + parameter.name);
      EXPECT_LE(relative_difference(parameter.gradient, expected), kTolerance) << parameter.name;
    }
  }
};

/// [B, T, V] as [B*T, V].
Tensor all_rows(const Tensor& logits) { return logits.view({logits.row_count(), logits.size(-1)}); }

/// Logits at padding mean nothing; the golden file holds zeros there.
void clear_padding(const Tensor& logits, const TokenBatch& batch) {
  for (int64_t row = 0; row < batch.batch * batch.length; ++row)
    if (batch.tokens[static_cast<size_t>(row)] == kPadding)
      all_rows(logits).rows(row, row + 1).fill(0.0F);
}

/// Row `b` as a separate batch, without its padding.
TokenBatch single_row(const TokenBatch& batch, int64_t b) {
  TokenBatch single{1, 0, {}};
  for (int32_t token : batch.row(b))
    if (token != kPadding) single.tokens.push_back(token);
  single.length = static_cast<int64_t>(single.tokens.size());
  return single;
}

TEST_P(GoldenTest, LogitsLossAndGradients) {
  LlamaStage model = golden_.whole();
  const Tensor logits = model.forward(golden_.tokens);

  const Tensor valid = logits.clone();
  clear_padding(valid, golden_.tokens);
  EXPECT_LE(relative_difference(valid, golden_.file.read("logits")), kTolerance);

  const double loss = reference_loss(logits, golden_.tokens, golden_.tokens.target_count());
  EXPECT_NEAR(loss, golden_.file.read("loss").values()[0], 1e-5);

  const Tensor input_gradient = model.backward(logits);
  EXPECT_FALSE(input_gradient.defined()) << "tokens have no gradient";
  expect_golden_gradients(model);
}

TEST_P(GoldenTest, RowsAsMicrobatchesInFlightAddUpToTheBatch) {
  LlamaStage model = golden_.whole();
  const int64_t targets = golden_.tokens.target_count();
  const auto rows = static_cast<int>(golden_.tokens.batch);
  ASSERT_GE(rows, 2);

  double loss = 0.0;
  std::vector<Tensor> logits;
  for (int b = 0; b < rows; ++b) {
    const TokenBatch row = single_row(golden_.tokens, b);
    logits.push_back(model.forward(row, b));
    loss += reference_loss(logits.back(), row, targets);
  }
  for (int b = rows - 1; b >= 0; --b) model.backward(logits[static_cast<size_t>(b)], b);

  EXPECT_NEAR(loss, golden_.file.read("loss").values()[0], 1e-5);
  expect_golden_gradients(model);
  EXPECT_EQ(model.activation_bytes(), 0U) << "all microbatches are done";
  EXPECT_GT(model.peak_activation_bytes(), 0U);

  // In flight together or one after the other: the same bits, if the backward order is the same.
  LlamaStage alone = golden_.whole();
  for (int b = rows - 1; b >= 0; --b) {
    const TokenBatch row = single_row(golden_.tokens, b);
    const Tensor own_logits = alone.forward(row);
    reference_loss(own_logits, row, targets);
    alone.backward(own_logits);
  }
  EXPECT_TRUE(test::same_bits(model.gradients(), alone.gradients()));
}

TEST_P(GoldenTest, ZeroGradientsForgetsAndDiscardLeavesNoTrace) {
  LlamaStage model = golden_.whole();
  const Tensor first = model.forward(golden_.tokens);
  first.fill(1.0F);
  model.backward(first);
  model.zero_gradients();
  model.forward(golden_.tokens);
  model.discard();
  EXPECT_EQ(model.activation_bytes(), 0U);

  const Tensor logits = model.forward(golden_.tokens);
  reference_loss(logits, golden_.tokens, golden_.tokens.target_count());
  model.backward(logits);
  expect_golden_gradients(model);
}

/// Forward and backward through consecutive stages. Returns the logits.
Tensor run_pipeline(std::vector<LlamaStage>& stages, const TokenBatch& tokens) {
  Tensor hidden = stages.front().forward(tokens).clone();
  for (size_t s = 1; s < stages.size(); ++s) hidden = stages[s].forward(hidden).clone();
  const Tensor logits = hidden.clone();
  reference_loss(hidden, tokens, tokens.target_count());
  for (size_t s = stages.size(); s-- > 0;) {
    const Tensor gradient = stages[s].backward(hidden);
    if (s > 0) hidden = gradient.clone();
  }
  return logits;
}

TEST_P(GoldenTest, StagesHaveTheBitsOfTheWhole) {
  std::vector<LlamaStage> whole;
  whole.push_back(golden_.whole());
  const Tensor expected = run_pipeline(whole, golden_.tokens);
  whole.front().gradients();  // completes a tied head's gradient

  for (int64_t count = 2; count <= golden_.config.layers; ++count) {
    SCOPED_TRACE(count);
    std::vector<LlamaStage> stages;
    for (int64_t s = 0; s < count; ++s) {
      const int64_t layers = golden_.config.layers;
      stages.push_back(
          golden_.stage({s * layers / count, (s + 1) * layers / count, s == 0, s == count - 1}));
    }
    EXPECT_TRUE(test::same_bits(run_pipeline(stages, golden_.tokens), expected));

    std::map<std::string, Tensor> gradients;
    for (const LlamaStage& stage : stages)
      for (const Parameter& parameter : stage.named_parameters()) {
        // The two halves of a tied head's gradient add up.
        Tensor& sum = gradients[golden_.stored_name(parameter.name)];
        const Tensor gradient = parameter.gradient.clone();
        for (size_t i = 0; sum.defined() && i < gradient.values().size(); ++i)
          gradient.values()[i] += sum.values()[i];
        sum = gradient;
      }
    ASSERT_EQ(gradients.size(), whole.front().named_parameters().size());
    for (const Parameter& parameter : whole.front().named_parameters())
      EXPECT_TRUE(test::same_bits(gradients.at(parameter.name), parameter.gradient))
          << parameter.name;
  }
}

TEST_P(GoldenTest, DecodingTokenByTokenGivesTheLogitsOfForward) {
  const LlamaStage model = golden_.whole();
  const Tensor expected = all_rows(golden_.file.read("logits"));
  for (int64_t b = 0; b < golden_.tokens.batch; ++b) {
    const TokenBatch row = single_row(golden_.tokens, b);
    for (const int64_t prompt : {int64_t{1}, (row.length + 1) / 2}) {
      const auto cache = model.new_cache();
      for (int64_t t = 0; t < row.length;) {
        const int64_t end = std::max(t + 1, prompt);
        const std::span<const int32_t> next(&row.tokens[static_cast<size_t>(t)],
                                            static_cast<size_t>(end - t));
        const Tensor logits = model.decode(next, *cache);
        const int64_t last = b * golden_.tokens.length + end - 1;
        EXPECT_LE(relative_difference(logits, expected.rows(last, last + 1)), kTolerance)
            << "row " << b << ", position " << end - 1 << ", prompt of " << prompt;
        t = end;
      }
    }
  }
}

TEST_P(GoldenTest, DecodingPastTheContextIsAnError) {
  const LlamaStage model = golden_.whole();
  const auto cache = model.new_cache();
  const std::vector<int32_t> tokens(static_cast<size_t>(golden_.config.context), 3);
  model.decode(tokens, *cache);
  EXPECT_THROW(model.decode(std::span(tokens).first(1), *cache), Error);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest,
                         testing::Values("multi_head", "grouped_query", "tied_head", "odd_sizes"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace lab::golden_test
