// LlamaStage whose weights are bound part by part: the same bits as with its own, errors by name,
// and observers around every part.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/model/llama_stage.h"
#include "tests/unit/error_of.h"
#include "tests/unit/numeric.h"
#include "tests/unit/tiny_training.h"

namespace lab::bound_weights_test {
namespace {

LlamaConfig config(bool tied) {
  LlamaConfig c = tiny_config();
  c.tied_head = tied;
  return c;
}

LlamaStage bound(const LlamaConfig& c, uint64_t seed = 1) {
  return {c, StageSpan::whole(c), Device::kCpu, seed, WeightMemory::kBound};
}

Tensor zeros_for(const LlamaStage& model, size_t part) {
  return Tensor::zeros({model.part_size(part)});
}

/// One forward and backward pass; returns the logits.
Tensor run(LlamaStage& model) {
  const Tensor logits = model.forward(pattern_batch(1));
  Tensor copy = logits.clone();
  model.backward(test::random_tensor(logits.shape(), 5));
  return copy;
}

class BoundWeights : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Heads, BoundWeights, testing::Values(false, true));

TEST_P(BoundWeights, PartsAreThePiecesOfTheFlatBuffer) {
  const LlamaConfig c = config(GetParam());
  const LlamaStage whole(c, StageSpan::whole(c), Device::kCpu, 1);
  LlamaStage parts = bound(c);
  EXPECT_EQ(parts.part_count(), 4U);
  EXPECT_EQ(parts.part_name(0), "model.embed_tokens");
  EXPECT_EQ(parts.part_name(2), "model.layers.1");
  EXPECT_EQ(parts.parameter_count(), whole.parameter_count());
  int64_t first = 0;
  size_t parameters = 0;
  for (size_t p = 0; p < parts.part_count(); ++p) {
    const Tensor values = Tensor::zeros({parts.part_size(p) + 3});  // more than it takes
    parts.bind(p, values);
    parts.initialise(p);
    EXPECT_TRUE(test::same_bits(values.rows(0, parts.part_size(p)),
                                whole.parameters().rows(first, first + parts.part_size(p))))
        << parts.part_name(p);
    for (const Parameter& parameter : parts.part_parameters(p)) {
      EXPECT_GE(parameter.value.data(), values.data()) << parameter.name;
      EXPECT_LT(parameter.value.data(), values.data() + parts.part_size(p)) << parameter.name;
      ++parameters;
    }
    parts.release(p);
    first += parts.part_size(p);
  }
  EXPECT_EQ(first, whole.parameters().numel());
  EXPECT_EQ(parameters, whole.named_parameters().size());
}

TEST_P(BoundWeights, TheSameBitsAsItsOwnMemory) {
  const LlamaConfig c = config(GetParam());
  LlamaStage whole(c, StageSpan::whole(c), Device::kCpu, 1);
  const Tensor expected = run(whole);
  LlamaStage parts = bound(c);
  std::vector<Tensor> gradients;
  for (size_t p = 0; p < parts.part_count(); ++p) {
    parts.bind(p, zeros_for(parts, p));
    parts.initialise(p);
    gradients.push_back(zeros_for(parts, p));
    parts.bind_gradient(p, gradients[p]);
  }
  EXPECT_TRUE(test::same_bits(run(parts), expected));
  int64_t first = 0;
  for (size_t p = 0; p < parts.part_count(); ++p) {
    const Tensor whole_gradient = whole.gradients().rows(first, first + parts.part_size(p));
    for (int64_t i = 0; i < whole_gradient.numel(); ++i)
      ASSERT_NEAR(gradients[p].data()[i], whole_gradient.data()[i], 1e-5) << parts.part_name(p);
    first += parts.part_size(p);
  }
  parts.zero_gradients();
  for (const Tensor& gradient : gradients)
    EXPECT_EQ(std::ranges::count(gradient.values(), 0.0F), gradient.numel());
}

TEST_P(BoundWeights, ObserversBindWhatIsNeededAndReleaseIt) {
  const LlamaConfig c = config(GetParam());
  LlamaStage whole(c, StageSpan::whole(c), Device::kCpu, 1);
  const Tensor expected = run(whole);
  LlamaStage parts = bound(c);
  std::string events;
  const auto note = [&events](const char* what, const LlamaStage::PartUse& use) {
    events += fmt::format("{}{}{}{} ", what, use.pass == LlamaStage::Pass::kForward ? "f" : "b",
                          use.part, use.next ? fmt::format(">{}", *use.next) : "");
  };
  parts.watch_parts(
      [&](const LlamaStage::PartUse& use) {
        note("+", use);
        parts.bind(use.part, zeros_for(parts, use.part));
        parts.initialise(use.part);
        if (use.pass == LlamaStage::Pass::kBackward)
          parts.bind_gradient(use.part, zeros_for(parts, use.part));
      },
      [&](const LlamaStage::PartUse& use) {
        note("-", use);
        parts.release(use.part);
        if (use.pass == LlamaStage::Pass::kBackward) parts.release_gradient(use.part);
      });
  EXPECT_TRUE(test::same_bits(run(parts), expected));
  EXPECT_EQ(events, GetParam() ? "+f0>1 -f0>1 +f1>2 -f1>2 +f2>3 -f2>3 +f3>0 +f0 -f3>0 -f0 "
                                 "+b0>3 +b3>2 -b0>3 -b3>2 +b2>1 -b2>1 +b1>0 -b1>0 +b0 -b0 "
                               : "+f0>1 -f0>1 +f1>2 -f1>2 +f2>3 -f2>3 +f3 -f3 "
                                 "+b3>2 -b3>2 +b2>1 -b2>1 +b1>0 -b1>0 +b0 -b0 ");
  for (const Parameter& parameter : parts.named_parameters()) {
    EXPECT_FALSE(parameter.value.defined()) << parameter.name;
    EXPECT_FALSE(parameter.gradient.defined()) << parameter.name;
  }
  parts.watch_parts({}, {});
  EXPECT_TRUE(contains(error_of([&] { parts.forward(pattern_batch(1), 7); }),
                       "the weights of model.embed_tokens, which are not bound"));
}

TEST(BoundWeights, WhatIsNotBoundIsAnErrorByName) {
  const LlamaConfig c = config(false);
  LlamaStage model = bound(c);
  for (size_t p = 0; p < model.part_count(); ++p) {
    model.bind(p, zeros_for(model, p));
    model.initialise(p);
    if (p != 1) model.bind_gradient(p, zeros_for(model, p));
  }
  const Tensor logits = model.forward(pattern_batch(1));
  EXPECT_TRUE(contains(error_of([&] { model.backward(logits); }),
                       "the gradient of model.layers.0, which is not bound"));
  model.release(2);
  const std::string error = error_of([&] { model.forward(pattern_batch(1), 1); });
  EXPECT_TRUE(contains(error, "forward pass needs the weights of model.layers.1")) << error;
  const auto cache = model.new_cache();
  const int32_t token = 1;
  EXPECT_TRUE(contains(error_of([&] { model.decode({&token, 1}, *cache); }), "model.layers.1"));
  EXPECT_TRUE(contains(error_of([&] { model.parameters(); }), "no flat buffer"));
  EXPECT_TRUE(contains(error_of([&] { model.gradients(); }), "no flat buffer"));
  EXPECT_TRUE(contains(error_of([&] { model.initialise(2); }), "model.layers.1"));
  EXPECT_TRUE(contains(error_of([&] { model.bind(1, Tensor::zeros({3})); }),
                       "[3] cannot hold model.layers.0"));
  EXPECT_TRUE(contains(error_of([&] { model.bind(9, Tensor::zeros({3})); }), "part 9"));
  LlamaStage whole(c, StageSpan::whole(c), Device::kCpu, 1);
  EXPECT_TRUE(contains(error_of([&] { whole.release(0); }), "WeightMemory::kBound"));
}

}  // namespace
}  // namespace lab::bound_weights_test
