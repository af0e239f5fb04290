// Gradients against finite differences: of a known function, and of lab 01's loss and step.
#include "common/optim/gradient_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/error.h"
#include "common/tensor/tensor.h"
#include "labs/01_single_gpu/check_gradients.h"

namespace lab::gradient_check_test {
namespace {

// f(x) = sum of exp(x_i) is its own gradient.
struct Exponentials {
  std::vector<float> x = {-1.0F, 0.0F, 0.5F, 1.0F, -0.5F};
  std::vector<float> gradient = {0.36788F, 1.0F, 1.64872F, 2.71828F, 0.60653F};

  GradientCheck check(float step, uint64_t seed = 1) {
    const auto sum = [this] {
      double all = 0;
      for (const float v : x) all += double{std::exp(v)};
      return all;
    };
    return check_gradient(x, gradient, sum, step, seed);
  }
};

TEST(GradientCheck, AcceptsTheRightGradientAndRestoresTheValues) {
  Exponentials f;
  const std::vector<float> before = f.x;
  for (uint64_t seed = 1; seed <= 10; ++seed) EXPECT_LT(f.check(0.005F, seed).error(), 1e-4);
  EXPECT_EQ(f.x, before);
}

TEST(GradientCheck, FindsAWrongFactorAndASingleWrongEntry) {
  Exponentials scaled;
  for (float& g : scaled.gradient) g *= 3;
  Exponentials missing;
  missing.gradient[2] = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_GT(scaled.check(0.005F, seed).error(), 0.01);
    EXPECT_GT(missing.check(0.005F, seed).error(), 0.1);
  }
}

TEST(GradientCheck, IsWorseForLargerAndForSmallerSteps) {
  Exponentials f;
  const double best = f.check(0.005F).error();
  EXPECT_GT(f.check(0.5F).error(), 10 * best) << "curvature";
  EXPECT_GT(f.check(1e-6F).error(), 10 * best) << "rounding";
}

TEST(GradientCheck, RefusesOtherSizesAndSteps) {
  std::vector<float> two(2);
  const std::vector<float> three(3);
  const auto zero = [] { return 0.0; };
  EXPECT_THROW(check_gradient(two, three, zero, 0.01F), Error);
  EXPECT_THROW(check_gradient(two, two, zero, 0.0F), Error);
  EXPECT_EQ(check_gradient(two, two, zero, 0.01F).error(), 0);
}

// Mistakes of lab 01 as a student makes them.
double three_times_the_gradient(const Tensor& logits, const TokenBatch& batch, int64_t targets) {
  const double value = lab01::causal_lm_loss(logits, batch, targets);
  for (float& g : logits.values()) g *= 3;
  return value;
}

double last_row_without_gradient(const Tensor& logits, const TokenBatch& batch, int64_t targets) {
  const double value = lab01::causal_lm_loss(logits, batch, targets);
  const auto row = static_cast<size_t>(logits.numel() / batch.batch);
  for (float& g : logits.values().last(row)) g = 0;
  return value;
}

TEST(GradientCheck, AcceptsTheSolutionOfLab01) {
  EXPECT_EQ(lab01::check_gradients(&lab01::causal_lm_loss), 0);  // sets one thread
  EXPECT_LT(lab01::check_loss(&lab01::causal_lm_loss, 1e-2F).check.error(), 1e-3);
  EXPECT_LT(lab01::check_step(&lab01::causal_lm_loss, 1e-3F).check.error(), 5e-3);
}

TEST(GradientCheck, FindsMistakesInLab01) {
  for (const auto loss : {&three_times_the_gradient, &last_row_without_gradient}) {
    EXPECT_EQ(lab01::check_gradients(loss), 1);
    EXPECT_GT(lab01::check_loss(loss, 1e-2F).check.error(), 10 * lab01::kGradientTolerance);
    EXPECT_GT(lab01::check_step(loss, 1e-3F).check.error(), 10 * lab01::kGradientTolerance);
  }
}

}  // namespace
}  // namespace lab::gradient_check_test
