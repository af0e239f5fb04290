// Task 2: which bucket is posted when, in simulated time; and what travels.
#include <gtest/gtest.h>

#include "tests/labs/08_overlap/steps.h"

namespace lab08::task2 {
namespace {

using lab::grading::scenario_seed;

TEST(Task2, EveryBucketInItsTurn) {
  expect_steps(draw_steps(200 + scenario_seed()), Wires::kCosts, "3");
}

TEST(Task2, LateMessagesInAnyOrder) {
  expect_steps(draw_steps(210 + scenario_seed()), Wires::kLate, "3");
}

TEST(Task2, OverGloo) { expect_steps({draw_steps(220 + scenario_seed())[1]}, Wires::kGloo, "3"); }

TEST(Task2, NothingIsReadyTwice) {
  const std::vector<StepsCase> drawn = draw_steps(230 + scenario_seed());
  std::vector<StepsCase> cases;
  for (const StepsCase& once : {drawn[0], drawn[1]}) {
    StepsCase twice = once;
    twice.again = true;
    twice.name = "ready is called again for gradients that were ready before";
    cases.insert(cases.end(), {once, twice});
  }
  expect_steps(cases, Wires::kCosts, "3");
}

}  // namespace
}  // namespace lab08::task2
