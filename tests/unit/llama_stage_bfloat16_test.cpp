// LlamaStage that keeps bfloat16 between the operations of a layer, on the CPU, against float32.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/model/llama_stage.h"
#include "common/ops/ops.h"
#include "common/ops/precision.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/unit/numeric.h"
#include "tests/unit/tiny_stage.h"

namespace lab::llama_stage_bfloat16_test {
namespace {

using test::random_batch;
using test::tiny;
using test::to_doubles;

/// Forward, loss and backward; returns the loss.
double learn(LlamaStage& model, const TokenBatch& batch) {
  const Tensor logits = model.forward(batch);
  const double loss = lab01::causal_lm_loss(logits, batch, 40);
  model.backward(logits);
  return loss;
}

class Bfloat16OnCpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_has_bfloat16()) GTEST_SKIP() << "this processor has no bfloat16";
  }
  void TearDown() override { set_precision(Device::kCpu, Precision::kFloat32); }

  static test::Doubles gradients(LlamaStage& model, Precision precision, uint64_t passes = 2) {
    set_precision(Device::kCpu, precision);
    model.zero_gradients();
    for (uint64_t pass = 0; pass < passes; ++pass) learn(model, random_batch(pass));
    return to_doubles(model.gradients());
  }
};

double distance(const test::Doubles& actual, const test::Doubles& expected) {
  double difference = 0.0;
  double length = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    length += expected[i] * expected[i];
  }
  return std::sqrt(difference / length);
}

TEST_F(Bfloat16OnCpu, LossAndEveryGradientAreNearFloat32) {
  for (const bool tied : {false, true}) {
    LlamaConfig config = tiny();
    config.tied_head = tied;
    LlamaStage model = test::whole(Device::kCpu, config);
    double loss[2];
    std::vector<test::Doubles> all[2];
    for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
      const size_t which = precision == Precision::kFloat32 ? 0 : 1;
      set_precision(Device::kCpu, precision);
      model.zero_gradients();
      loss[which] = learn(model, random_batch(1));
      for (const Parameter& parameter : model.named_parameters())
        all[which].push_back(to_doubles(parameter.gradient));
    }
    EXPECT_NEAR(loss[0], loss[1], 0.01);
    EXPECT_NE(loss[0], loss[1]);
    for (size_t i = 0; i < all[0].size(); ++i)
      EXPECT_LT(distance(all[1][i], all[0][i]), 0.1) << model.named_parameters()[i].name;
  }
}

TEST_F(Bfloat16OnCpu, EveryRunHasTheSameBits) {
  LlamaStage model = test::whole(Device::kCpu);
  const test::Doubles first = gradients(model, Precision::kBfloat16, 4);
  EXPECT_EQ(gradients(model, Precision::kBfloat16, 4), first);
}

TEST_F(Bfloat16OnCpu, KeepsHalfOfWhatPassesBetweenOperations) {
  LlamaStage model = test::whole(Device::kCpu);
  const auto bytes = [&](Precision precision) {
    set_precision(Device::kCpu, precision);
    model.forward(random_batch(1));
    const size_t active = model.activation_bytes();
    model.discard(0);
    return active;
  };
  const LlamaConfig c = tiny();
  const int64_t key_width = c.kv_heads * c.head_dim();
  const int64_t halved = 2 * c.dim + 2 * key_width + 2 * c.hidden_dim;  // qkv, attention, gate_up
  EXPECT_EQ(bytes(Precision::kFloat32) - bytes(Precision::kBfloat16),
            static_cast<size_t>(2 * 19 * c.layers * halved * 2));
}

TEST_F(Bfloat16OnCpu, FollowsItsWeights) {
  LlamaStage model = test::whole(Device::kCpu);
  gradients(model, Precision::kBfloat16);
  LlamaStage other = test::whole(Device::kCpu);
  for (LlamaStage* each : {&model, &other}) scale(each->parameters(), 1.25F);
  EXPECT_EQ(gradients(model, Precision::kBfloat16), gradients(other, Precision::kBfloat16));
}

TEST_F(Bfloat16OnCpu, MayChangeBetweenMicrobatches) {
  LlamaStage model = test::whole(Device::kCpu);
  const test::Doubles exact = gradients(model, Precision::kFloat32);
  const test::Doubles rounded = gradients(model, Precision::kBfloat16);
  EXPECT_NE(exact, rounded);
  EXPECT_EQ(gradients(model, Precision::kFloat32), exact);
  EXPECT_EQ(gradients(model, Precision::kBfloat16), rounded);
}

// The stages of a split model compute what the whole one does: the residual stream is float32.
TEST_F(Bfloat16OnCpu, StagesHaveTheBitsOfTheWholeModel) {
  set_precision(Device::kCpu, Precision::kBfloat16);
  const LlamaConfig config = tiny();
  LlamaStage all = test::whole(Device::kCpu);
  LlamaStage first(config, {.first_layer = 0, .last_layer = 1, .embeds = true}, Device::kCpu, 7);
  LlamaStage second(config, {.first_layer = 1, .last_layer = 3, .has_head = true}, Device::kCpu, 7);
  const TokenBatch batch = random_batch(3);
  const Tensor logits = second.forward(first.forward(batch));
  EXPECT_EQ(to_doubles(logits), to_doubles(all.forward(batch)));
}

}  // namespace
}  // namespace lab::llama_stage_bfloat16_test
