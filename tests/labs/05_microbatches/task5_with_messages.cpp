// Task 5: programs that cannot deadlock, and cost no time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/pipeline/simulate.h"
#include "common/pipeline/validate.h"
#include "tests/labs/05_microbatches/plans.h"
#include "tests/labs/05_microbatches/waves.h"

namespace lab05 {
namespace {

using lab::Action;
using lab::ActionList;
using lab::Schedule;
using lab::StageCosts;

constexpr double kExact = 1e-9;
const std::string kFunction = "with_messages";

void expect_passes(const Question& question, const Schedule& answer) {
  expect_size(question, answer);
  for (size_t s = 0; s < answer.stages.size(); ++s) {
    ActionList passes = answer.stages[s];
    std::erase_if(passes, [](const Action& action) { return is_message(action.kind); });
    const ActionList& plan = question.plan.stages[s];
    const auto [got, wanted] = std::ranges::mismatch(passes, plan);
    if (got == passes.end() && wanted == plan.end()) continue;
    stop(question, answer,
         fmt::format("the passes of stage {} are not those of the schedule: {} where {} should be. "
                     "Messages are added; passes stay, in their order",
                     s, got == passes.end() ? "nothing" : to_string(*got),
                     wanted == plan.end() ? "nothing" : to_string(*wanted)));
  }
  if (question.size.stages > 1 && !answer.has_messages())
    stop(question, answer, "there is no message in it: this is the schedule as it was passed in");
}

bool any_posted(const Schedule& program) {
  return std::ranges::any_of(program.stages, [](const ActionList& list) {
    return std::ranges::any_of(list, &Action::posted);
  });
}

void expect_no_deadlock(const Question& question, const Schedule& answer) {
  const auto fault = lab::validate(answer);
  if (!fault) return;
  const bool naive = !fault->cycle.empty() && !any_posted(answer);
  stop(
      question, answer,
      fault->message + (naive ? "\nno message is posted: see the circle that task 3 ends in" : ""));
}

/// Costs of equal stages, and of stages that differ.
std::vector<std::vector<StageCosts>> all_costs(int stages) {
  std::vector<std::vector<StageCosts>> all = {{{.forward = 1, .backward = 2, .message = 0}},
                                              {{.forward = 1, .backward = 1, .message = 0}},
                                              {{.forward = 3, .backward = 2, .message = 0}}};
  for (const int variant : {0, 1}) {
    std::vector<StageCosts>& uneven = all.emplace_back();
    for (int s = 0; s < stages; ++s)
      uneven.push_back({.forward = 1.0 + (s + variant) % 3,
                        .backward = 2.0 + 3 * ((s + variant) % 2),
                        .message = 0});
  }
  return all;
}

void expect_no_delay(const Question& question, const Schedule& answer) {
  for (const std::vector<StageCosts>& costs : all_costs(question.size.stages)) {
    const double time = lab::makespan(lab::simulate(answer, costs));
    const double planned = lab::makespan(lab::simulate(question.plan, costs));
    if (time > planned + kExact)
      stop(question, answer,
           fmt::format("slower than the schedule: {} units of time instead of {}, although its "
                       "messages take none: some stage waits in a message that it could have "
                       "posted",
                       time, planned));
  }
}

void expect_program(const Question& question, const Schedule& answer) {
  expect_passes(question, answer);
  expect_no_deadlock(question, answer);
  expect_no_delay(question, answer);
}

void expect_programs(const std::vector<std::string>& kinds, uint64_t seed) {
  std::vector<Question> questions;
  seed += 1000 * lab::grading::scenario_seed();
  for (const Size& size : all_sizes()) {
    ++seed;
    questions.push_back(about_plan(kFunction, kinds[seed % kinds.size()], size, seed));
  }
  judge_schedules(kFunction, questions, expect_program, {"3"});
}

TEST(Task5, OneForwardOneBackwardAndGpipe) { expect_programs({"GPipe", "1F1B"}, 0); }

TEST(Task5, AnyPlan) { expect_programs({"another order"}, 500); }

/// The same sizes with schedules of several kinds in turn.
TEST(Task5, OnePlanAfterTheOther) {
  std::vector<Question> questions;
  for (const Size& size : {Size{3, 4}, Size{2, 5}, Size{4, 3}, Size{5, 6}})
    for (const char* kind : {"1F1B", "another order", "GPipe", "another order"})
      questions.push_back(about_plan(kFunction, kind, size, 510 + questions.size()));
  judge_schedules(kFunction, questions, expect_program, {"3"});
}

/// What it makes of a schedule, run by a correct executor.
TEST(Task5, OnANetworkThatBuffersNothing) {
  const std::vector<Question> questions = {about_plan(kFunction, "1F1B", {3, 6}),
                                           about_plan(kFunction, "another order", {3, 5}, 52)};
  std::vector<Wave> waves;
  judge_schedules(
      kFunction, questions,
      [&](const Question& question, const Schedule& answer) {
        expect_program(question, answer);
        waves.push_back(draw_wave(question.name, answer, Microbatches::kAlike, 520 + waves.size()));
      },
      {"3"});
  judge_waves(waves, 3, lab::grading::late_messages(52, {"4"}));
}

}  // namespace
}  // namespace lab05
