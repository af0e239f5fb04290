// Ten training steps against PyTorch: the reference solution of lab 01 on the model, optimizer and
// clipping of common/ must lose the same nats and reach the same weights. One run is plain Adam;
// the other AdamW, clipped, with two microbatches of unequally many targets.
#include <gtest/gtest.h>

#include "common/optim/clip.h"
#include "common/optim/optimizer.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/unit/golden.h"

namespace lab::training_golden_test {
namespace {

// PyTorch's own float32 differs from the float64 golden values by up to 5e-5 of the displacement.
constexpr double kDisplacementTolerance = 2e-4;

class TrainingGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  std::vector<TokenBatch> microbatches(int64_t step) const {
    const Tensor all = golden_.file.read("training.tokens");  // [steps, microbatches, B, T]
    std::vector<TokenBatch> result;
    for (int64_t m = 0; m < all.size(1); ++m) {
      const Tensor of_step = all.rows(step, step + 1).view({all.size(1), all.size(2), all.size(3)});
      result.push_back(token_batch(of_step.rows(m, m + 1).view({all.size(2), all.size(3)})));
    }
    return result;
  }

  AdamConfig adam() const {
    return {training_.at("beta1"), training_.at("beta2"), training_.at("epsilon")};
  }

  Golden golden_{GetParam()};
  nlohmann::json training_ = golden_.settings.at("training");
};

TEST_P(TrainingGoldenTest, TenStepsReachTheWeightsOfPyTorch) {
  LlamaStage model = golden_.whole();
  Adam optimizer(model.parameters().numel(), adam(), lab01::adam_update,
                 training_.at("weight_decay"));
  const Tensor losses = golden_.file.read("training.losses");
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const double loss =
        lab01::train_step(model, optimizer, microbatches(step), lab01::causal_lm_loss,
                          training_.at("learning_rate"), training_.at("max_norm"));
    EXPECT_NEAR(loss, losses.values()[static_cast<size_t>(step)], 1e-5) << "step " << step;
  }

  for (const Parameter& parameter : model.named_parameters()) {
    // The way that the weights have gone is compared, not the weights: it is a hundredth of them.
    const Tensor moved = parameter.value.clone();
    const Tensor expected = golden_.file.read("final." + parameter.name);
    const Tensor start = golden_.file.read(parameter.name);
    for (size_t i = 0; i < start.values().size(); ++i) {
      moved.values()[i] -= start.values()[i];
      expected.values()[i] -= start.values()[i];
    }
    EXPECT_LE(relative_difference(moved, expected), kDisplacementTolerance) << parameter.name;
  }
}

TEST_P(TrainingGoldenTest, GradientNormAndClippingOfTheFirstStep) {
  LlamaStage model = golden_.whole();
  int64_t targets = 0;
  for (const TokenBatch& batch : microbatches(0)) targets += batch.target_count();
  for (const TokenBatch& batch : microbatches(0)) {
    const Tensor logits = model.forward(batch);
    reference_loss(logits, batch, targets);
    model.backward(logits);
  }
  const double expected = golden_.file.read("training.norms").values()[0];
  EXPECT_NEAR(gradient_norm(model), expected, 1e-5 * expected);

  EXPECT_NEAR(clip_gradients(model, 2 * expected), expected, 1e-5 * expected);
  EXPECT_NEAR(gradient_norm(model), expected, 1e-5 * expected) << "below the limit: as it was";
  EXPECT_NEAR(clip_gradients(model, 0.5), expected, 1e-5 * expected) << "the norm before";
  EXPECT_NEAR(gradient_norm(model), 0.5, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingGoldenTest, testing::Values("multi_head", "tied_head"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace lab::training_golden_test
