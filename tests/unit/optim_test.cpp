// Optimizers, learning-rate schedule and clipping. The Adam formula itself is lab 01's.
#include <gtest/gtest.h>

#include <cmath>

#include "common/error.h"
#include "common/optim/clip.h"
#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"
#include "tests/unit/numeric.h"

namespace lab::optim_test {
namespace {

/// Stands in for lab 01's function: writes down what it was given.
void record_update(const AdamConfig& config, float learning_rate, int64_t step,
                   std::span<float> parameters, std::span<const float> gradients,
                   std::span<float> first_moment, std::span<float> second_moment) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] += gradients[i] * learning_rate * config.beta1;
    first_moment[i] += 1.0F;
    second_moment[i] = static_cast<float>(step);
  }
}

TEST(Optimizer, SgdIsLinearInTheGradient) {
  const Tensor w = Tensor::from({1.0F, 2.0F}, {2});
  Sgd sgd;
  sgd.step(w, Tensor::from({0.5F, -1.0F}, {2}), 0.1F);
  EXPECT_FLOAT_EQ(w.values()[0], 0.95F);
  EXPECT_FLOAT_EQ(w.values()[1], 2.1F);
  EXPECT_EQ(sgd.steps(), 1);
}

TEST(Optimizer, AdamHandsEveryElementToTheUpdateOnce) {
  const int64_t size = 100'003;  // several blocks and a rest
  const Tensor w = Tensor::zeros({size});
  const Tensor g = Tensor::zeros({size});
  g.fill(2.0F);
  Adam adam(size, {.beta1 = 0.5F}, record_update);
  adam.step(w, g, 0.25F);
  adam.step(w, g, 0.25F);
  for (float x : w.values()) ASSERT_EQ(x, 0.5F);
  const auto state = adam.state();
  ASSERT_EQ(state.size(), 2U);
  EXPECT_EQ(state[0].name, "exp_avg");
  for (float m : state[0].value.values()) ASSERT_EQ(m, 2.0F);
  for (float v : state[1].value.values()) ASSERT_EQ(v, 2.0F) << "number of the update";
}

TEST(Optimizer, WeightDecayShrinksBeforeTheUpdate) {
  const Tensor w = Tensor::from({2.0F}, {1});
  Adam adamw(1, {.beta1 = 1.0F}, record_update, 0.5F);
  adamw.step(w, Tensor::from({1.0F}, {1}), 0.1F);
  EXPECT_FLOAT_EQ(w.values()[0], 2.0F * (1.0F - 0.1F * 0.5F) + 0.1F);
}

TEST(Optimizer, RefusesOtherSizes) {
  Adam adam(3, {}, record_update);
  EXPECT_THROW(adam.step(Tensor::zeros({2}), Tensor::zeros({2}), 0.1F), Error);
  EXPECT_THROW(Sgd().step(Tensor::zeros({2}), Tensor::zeros({3}), 0.1F), Error);
}

TEST(LearningRate, WarmsUpAndDecays) {
  const LearningRate rate{
      .peak = 1.0F, .warmup_steps = 10, .total_steps = 110, .decay = Decay::kCosine};
  EXPECT_FLOAT_EQ(rate.at(1), 0.1F);
  EXPECT_FLOAT_EQ(rate.at(10), 1.0F);
  EXPECT_NEAR(rate.at(60), 0.55F, 1e-6F);
  EXPECT_FLOAT_EQ(rate.at(110), 0.1F);
  EXPECT_FLOAT_EQ(rate.at(1000), 0.1F) << "training longer than planned";
  const LearningRate constant{.peak = 0.5F};
  EXPECT_EQ(constant.at(1), 0.5F);
  EXPECT_EQ(constant.at(1000), 0.5F);
}

TEST(Clip, ScalesToTheNormOrLeavesAlone) {
  LlamaConfig c;
  c.vocab_size = 7;
  c.dim = 4;
  c.heads = c.kv_heads = 2;
  c.layers = 1;
  c.hidden_dim = 4;
  LlamaStage model(c, StageSpan::whole(c), Device::kCpu, 1);
  double squares = 0.0;
  for (const Parameter& p : model.named_parameters()) {
    p.gradient.copy_from(test::random_tensor(p.gradient.shape(), 3));
    for (float g : p.gradient.values()) squares += static_cast<double>(g) * g;
  }
  const double norm = std::sqrt(squares);
  EXPECT_NEAR(gradient_norm(model), norm, 1e-9 * norm);
  EXPECT_NEAR(clip_gradients(model, 2.0 * norm), norm, 1e-9 * norm);
  EXPECT_NEAR(gradient_norm(model), norm, 1e-9 * norm) << "below the limit nothing changes";
  clip_gradients(model, 0.5);
  EXPECT_NEAR(gradient_norm(model), 0.5, 1e-6);
  EXPECT_THROW(clip_gradients(model, 0.0), Error);
}

}  // namespace
}  // namespace lab::optim_test
