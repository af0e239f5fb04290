// LlamaStage that keeps bfloat16 between the operations of a layer, against float32 on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/model/llama_stage.h"
#include "common/ops/ops.h"
#include "tests/gpu/cuda_test.h"
#include "tests/gpu/tiny_stage.h"

namespace lab {
namespace {

using test::learn;
using test::random_batch;
using test::tiny;
using test::to_doubles;
using test::whole;

class Bfloat16Stage : public test::OnBfloat16Gpu<testing::Test> {
 protected:
  void SetUp() override {
    OnBfloat16Gpu::SetUp();
    if (!IsSkipped()) accelerator().set_precision(Precision::kBfloat16);
  }

  /// Of three passes or more: one is launched kernel by kernel, one recorded, the others repeat it.
  static Tensor gradients(LlamaStage& model, uint64_t passes) {
    model.zero_gradients();
    for (uint64_t pass = 0; pass < passes; ++pass) learn(model, random_batch(pass));
    return model.gradients().to(Device::kCpu).clone();
  }
};

/// Of two vectors, relative to the length of the second.
double distance(const Tensor& actual, const Tensor& expected) {
  const test::Doubles a = to_doubles(actual);
  const test::Doubles b = to_doubles(expected);
  double difference = 0.0;
  double length = 0.0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  return std::sqrt(difference / length);
}

/// For each parameter. With these models the distance was at most 0.06: rounding
/// is 2^-8 of each number, some numbers nearly cancel, and errors grow from layer to layer.
void expect_near_gradients(const LlamaStage& on_gpu, const LlamaStage& on_cpu,
                           const std::string& what) {
  for (size_t i = 0; i < on_cpu.named_parameters().size(); ++i) {
    const Parameter& expected = on_cpu.named_parameters()[i];
    const Parameter& actual = on_gpu.named_parameters()[i];
    EXPECT_LT(distance(actual.gradient.to(Device::kCpu), expected.gradient), 0.1)
        << what << ", gradient of " << expected.name;
  }
}

LlamaConfig wider() {
  LlamaConfig config = tiny();
  config.dim = 64;  // heads of 16
  config.hidden_dim = 96;
  return config;
}

/// Several tiles of attention, heads of 64.
LlamaConfig longer() {
  LlamaConfig config = tiny();
  config.dim = 128;
  config.heads = 2;
  config.kv_heads = 1;
  config.layers = 2;
  config.hidden_dim = 96;
  config.context = 130;
  config.init_std = 0.1F;
  return config;
}

TEST_F(Bfloat16Stage, LossAndGradientsAreNearTheCpus) {
  for (const LlamaConfig& config : {tiny(), wider(), longer()}) {
    LlamaStage on_gpu = whole(Device::kCuda, config);
    LlamaStage on_cpu = whole(Device::kCpu, config);
    for (uint64_t pass = 1; pass <= 4; ++pass) {
      const TokenBatch batch = random_batch(pass, 2, config.context);
      on_gpu.zero_gradients();
      on_cpu.zero_gradients();
      EXPECT_NEAR(learn(on_gpu, batch), learn(on_cpu, batch), 0.01) << "pass " << pass;
      expect_near_gradients(on_gpu, on_cpu, "pass " + std::to_string(pass));
    }
  }
}

TEST_F(Bfloat16Stage, KeepsHalfOfWhatPassesBetweenOperations) {
  LlamaStage model = whole(Device::kCuda);
  const auto bytes = [&](Precision precision) {
    accelerator().set_precision(precision);
    learn(model, random_batch(1));
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

TEST_F(Bfloat16Stage, EveryRunHasTheSameBits) {
  LlamaStage one = whole(Device::kCuda);
  LlamaStage other = whole(Device::kCuda);
  EXPECT_EQ(test::different_bits(gradients(one, 4), gradients(other, 4)), 0U);
}

TEST_F(Bfloat16Stage, FollowsItsWeights) {
  LlamaStage model = whole(Device::kCuda);
  gradients(model, 3);
  LlamaStage other = whole(Device::kCuda);
  for (LlamaStage* each : {&model, &other}) scale(each->parameters(), 1.25F);
  EXPECT_EQ(test::different_bits(gradients(model, 1), gradients(other, 1)), 0U);
}

TEST_F(Bfloat16Stage, SeveralMicrobatchesInFlight) {
  LlamaStage one_by_one = whole(Device::kCuda);
  LlamaStage model = whole(Device::kCuda);
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> logits;
    for (uint64_t m = 0; m < 3; ++m)
      logits.push_back(model.forward(random_batch(m), static_cast<int>(m)));
    for (uint64_t m = 0; m < 3; ++m) {
      const TokenBatch batch = random_batch(m);
      learn(one_by_one, batch);
      training_functions(Device::kCuda).loss(logits[m], batch, 40);
      model.backward(logits[m], static_cast<int>(m));
    }
    for (LlamaStage* each : {&one_by_one, &model})
      add_scaled(each->gradients(), -0.01F, each->parameters());
  }
  EXPECT_EQ(test::different_bits(model.gradients().to(Device::kCpu),
                                 one_by_one.gradients().to(Device::kCpu)),
            0U);
}

TEST_F(Bfloat16Stage, PrecisionMayChangeBetweenMicrobatches) {
  LlamaStage model = whole(Device::kCuda);
  const Tensor rounded = gradients(model, 3);
  accelerator().set_precision(Precision::kFloat32);
  const Tensor exact = gradients(model, 3);
  LlamaStage always_exact = whole(Device::kCuda);
  EXPECT_EQ(test::different_bits(exact, gradients(always_exact, 3)), 0U);
  EXPECT_GT(test::different_bits(exact, rounded), 0U);
  accelerator().set_precision(Precision::kBfloat16);
  EXPECT_EQ(test::different_bits(rounded, gradients(model, 3)), 0U);
}

// The backward of a microbatch uses the memory and the weights of its forward's precision.
TEST_F(Bfloat16Stage, PrecisionMayChangeWhileAMicrobatchIsInFlight) {
  LlamaStage model = whole(Device::kCuda);
  LlamaStage on_cpu = whole(Device::kCpu);
  const TokenBatch batches[] = {random_batch(1), random_batch(2)};
  const auto loss = training_functions(Device::kCuda).loss;
  for (int round = 0; round < 4; ++round) {
    for (LlamaStage* each : {&model, &on_cpu}) each->zero_gradients();
    accelerator().set_precision(round % 2 == 0 ? Precision::kFloat32 : Precision::kBfloat16);
    const Tensor first = model.forward(batches[0], 0);
    accelerator().set_precision(round % 2 == 0 ? Precision::kBfloat16 : Precision::kFloat32);
    const Tensor second = model.forward(batches[1], 1);
    loss(first, batches[0], 80);
    loss(second, batches[1], 80);
    model.backward(first, 0);
    model.backward(second, 1);
    for (const TokenBatch& batch : batches) {
      const Tensor logits = on_cpu.forward(batch);
      training_functions(Device::kCpu).loss(logits, batch, 80);
      on_cpu.backward(logits);
    }
    expect_near_gradients(model, on_cpu, "round " + std::to_string(round));
  }
  accelerator().set_precision(Precision::kFloat32);
  LlamaStage always_exact = whole(Device::kCuda);
  EXPECT_EQ(test::different_bits(gradients(model, 3), gradients(always_exact, 3)), 0U);
}

// A microbatch that is neither taken back nor discarded does not keep old weights alive.
TEST_F(Bfloat16Stage, FollowsItsWeightsThoughAMicrobatchWasForgotten) {
  LlamaStage model = whole(Device::kCuda);
  model.forward(random_batch(9), 9);
  LlamaStage other = whole(Device::kCuda);
  for (LlamaStage* each : {&model, &other}) scale(each->parameters(), 1.25F);
  EXPECT_EQ(test::different_bits(gradients(model, 1), gradients(other, 1)), 0U);
}

}  // namespace
}  // namespace lab
