// The first difference between two recordings of training steps: of a right step, and of wrong
// ones.
#include "tests/grading/step_comparison.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/ops/ops.h"
#include "tests/grading/training_case.h"
#include "tests/grading/training_rank.h"

namespace lab::grading::step_comparison_test {
namespace {

/// One process, two steps of three microbatches each.
Parcel case_input() {
  TrainingCase training = draw_cases({.microbatches = 3}, 5)[0];
  training.steps.assign(2, {{}});
  for (uint64_t step = 0; step < 2; ++step)
    for (uint64_t k = 0; k < 3; ++k)
      training.steps[step][0].push_back(
          draw_tokens({4, 3}, 4, training.model.vocab_size, 10 * step + k));
  Parcel input = training.input(0);
  input.set(kRecordLogits, 1);
  return input;
}

struct Mistakes {
  float gradient_factor = 1;
  int64_t wrong_step = 2;
  bool divides_later = false;  // which is right
  bool skips_a_microbatch = false;
  double loss_factor = 1;
};

Parcel recorded(const Mistakes& mistakes) {
  return record_steps(case_input(), nullptr, [&](const StepArguments& a) {
    const bool wrong = a.step == mistakes.wrong_step;
    a.stage.zero_gradients();
    int64_t targets = 0;
    for (const TokenBatch& batch : a.microbatches) targets += batch.target_count();
    double sum = 0;
    for (size_t k = 0; k < a.microbatches.size(); ++k) {
      if (wrong && mistakes.skips_a_microbatch && k == 1) continue;
      const Tensor logits = a.stage.forward(a.microbatches[k]);
      sum += a.loss(logits, a.microbatches[k], mistakes.divides_later ? 1 : targets);
      a.stage.backward(logits);
    }
    if (mistakes.divides_later) {
      scale(a.stage.gradients(), 1 / static_cast<float>(targets));
      sum /= static_cast<double>(targets);
    }
    if (wrong) scale(a.stage.gradients(), mistakes.gradient_factor);
    a.optimizer.step(a.stage.parameters(), a.stage.gradients(), a.learning_rate);
    return wrong ? sum * mistakes.loss_factor : sum;
  });
}

std::string first_difference_of(const Mistakes& mistakes) {
  return first_difference({case_input()}, {recorded(mistakes)}, {recorded({})});
}

TEST(StepComparison, SameWithinTheTolerance) {
  EXPECT_EQ(first_difference_of({}), "");
  EXPECT_EQ(first_difference_of({.divides_later = true}), "");
  EXPECT_EQ(first_difference_of({.gradient_factor = 1.00001F}), "");
}

TEST(StepComparison, NamesStepRankAndParameter) {
  const std::string message = first_difference_of({.gradient_factor = 3});
  EXPECT_TRUE(
      message.starts_with("step 2 of 2, rank 0, lm_head.weight of the gradients given to "
                          "the optimizer: 3 times what they should be"))
      << message;
}

TEST(StepComparison, NamesTheMicrobatch) {
  EXPECT_EQ(first_difference_of({.wrong_step = 1, .skips_a_microbatch = true}),
            "step 1 of 2, rank 0, microbatch 2, the logits given to loss: there are none");
}

TEST(StepComparison, ComparesTheLossAfterAllElse) {
  const std::string message = first_difference_of({.loss_factor = 2});
  EXPECT_TRUE(message.starts_with("step 2 of 2, rank 0, the loss that train_step returns: wrong\n"))
      << message;
}

TEST(StepComparison, SaysOnWhichRanksItIsTheSame) {
  const Parcel right = recorded({});
  const std::vector<Parcel> inputs(3, case_input());
  const std::string message =
      first_difference(inputs, {right, recorded({.gradient_factor = 2, .wrong_step = 1}), right},
                       {right, right, right});
  EXPECT_TRUE(message.starts_with("step 1 of 2, rank 1, ")) << message;
  EXPECT_TRUE(message.ends_with("\nthe same on rank 0, 2")) << message;
}

}  // namespace
}  // namespace lab::grading::step_comparison_test
