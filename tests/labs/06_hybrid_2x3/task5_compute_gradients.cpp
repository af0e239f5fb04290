// Task 5: the gradients of a step of all pipelines.
#include <gtest/gtest.h>

#include "tests/labs/06_hybrid_2x3/steps.h"

namespace lab06::task5 {
namespace {

/// Without clipping: the gradients go into the optimizer as they are.
void expect_gradients(std::vector<StepCase> cases, JobOptions options) {
  options.given = {"1", "2", "4"};
  for (StepCase& c : cases) c.training.max_norm = 0;
  expect_steps("gradients", cases, options);
}

TEST(Task5, TwoPipelinesOfThreeStages) {
  expect_gradients(step_cases({2, 3}, 2, 51), late_messages(51));
}
TEST(Task5, ThreePipelinesOfTwoStages) {
  expect_gradients(step_cases({3, 2}, 3, 52), lab::grading::buffered_messages());
}
TEST(Task5, PipelinesOfOneStage) { expect_gradients(step_cases({4, 1}, 2, 53), late_messages(53)); }
TEST(Task5, OnePipeline) {
  std::vector<StepCase> cases = step_cases({1, 4}, 6, 54);
  // Every second one has waves so long that each stage warms up differently.
  for (size_t k = 0; k < cases.size(); k += 2) cases[k].wave = 6;
  expect_gradients(cases, late_messages(54));
}
TEST(Task5, ASingleRank) { expect_gradients(step_cases({1, 1}, 2, 55), late_messages(55)); }
/// `counts`: of microbatches that are no waves of `wave`.
void expect_refusals(const Grid& g, int wave, const std::vector<size_t>& counts, uint64_t seed) {
  const StepCase drawn = step_cases(g, 2 * wave + 2, seed)[0];
  std::vector<Call> calls;
  for (const size_t count : counts) {
    StepCase c = drawn;
    c.wave = wave;
    c.training.name = fmt::format("{} microbatches", count);
    c.training.steps.resize(1);
    for (auto& microbatches : c.training.steps[0]) microbatches.resize(count);
    calls.push_back(c.call("gradients_refused"));
  }
  judge_calls(
      calls, late_messages(seed, {"1", "2", "4"}), [&](size_t k, const std::vector<Parcel>& ranks) {
        for (size_t rank = 0; rank < ranks.size(); ++rank)
          expect_refusal(fmt::format("rank {}: {} microbatches are not one or more waves of the "
                                     "schedule's {}; compute_gradients",
                                     rank, counts[k], wave),
                         ranks[rank],
                         ranks[rank].number("losses") > 0    ? "called loss"
                         : ranks[rank].number("changed") > 0 ? "changed the gradients"
                                                             : "");
      });
}

TEST(Task5, RefusesAnIncompleteWave) {
  expect_refusals({2, 2}, 3, {2, 4, 1, 7, 8, 0}, 57);
  expect_refusals({2, 1}, 2, {3, 1, 0}, 59);
}

TEST(Task5, OverGloo) {
  const std::vector<StepCase> cases = step_cases({2, 3}, 4, 60);
  expect_gradients({cases[0], cases[3]}, {});
}

}  // namespace
}  // namespace lab06::task5
