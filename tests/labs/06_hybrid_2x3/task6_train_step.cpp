// Task 6: one optimizer step of all pipelines together.
#include <gtest/gtest.h>

#include "tests/labs/06_hybrid_2x3/steps.h"

namespace lab06::task6 {
namespace {

void expect_training(const std::vector<StepCase>& cases, JobOptions options) {
  options.given = {"1", "2", "4", "5"};
  expect_steps("train_step", cases, options);
}

TEST(Task6, TwoPipelinesOfThreeStages) {
  expect_training(step_cases({2, 3}, 2, 61), late_messages(61));
}
TEST(Task6, ThreePipelinesOfTwoStages) {
  expect_training(step_cases({3, 2}, 1, 62), late_messages(62));
}
TEST(Task6, PipelinesOfOneStage) { expect_training(step_cases({3, 1}, 2, 63), late_messages(63)); }
TEST(Task6, OnePipeline) { expect_training(step_cases({1, 4}, 2, 64), late_messages(64)); }
TEST(Task6, ASingleRank) { expect_training(step_cases({1, 1}, 2, 65), late_messages(65)); }
TEST(Task6, EightRanks) {
  expect_training({step_cases({4, 2}, 2, 66)[0]}, lab::grading::buffered_messages());
}

TEST(Task6, FivePipelinesAndFiveStages) {
  expect_training({step_cases({5, 1}, 2, 68)[0]}, lab::grading::buffered_messages());
  expect_training({step_cases({1, 5}, 2, 69)[0]}, late_messages(69));
}
TEST(Task6, SixMicrobatches) {
  expect_training({step_cases({2, 2}, 6, 70)[0]}, lab::grading::buffered_messages());
}

TEST(Task6, OverGloo) {
  const std::vector<StepCase> cases = step_cases({2, 3}, 2, 67);
  expect_training({cases[0], cases[3]}, {});
}

}  // namespace
}  // namespace lab06::task6
