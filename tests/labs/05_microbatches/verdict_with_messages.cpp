// Verdict on task 5: programs that cannot deadlock, and cost no time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/pipeline/simulate.h"
#include "common/pipeline/validate.h"
#include "tests/labs/05_microbatches/verdict_schedules.h"
#include "tests/labs/05_microbatches/verdict_wave.h"

namespace lab05 {
namespace {

using lab::Action;
using lab::ActionList;
using lab::Schedule;
using lab::StageCosts;

constexpr double kExact = 1e-9;

std::vector<Answer> answers(const std::vector<Question>& questions) {
  return ask_for_programs("with_messages", questions);
}

void expect_passes(const Answer& answer, const Schedule& plan) {
  if (answer.schedule.stage_count() != plan.stage_count() ||
      answer.schedule.microbatches != plan.microbatches)
    stop(answer, fmt::format("it has {} stages and {} microbatches, the plan has {} and {}",
                             answer.schedule.stage_count(), answer.schedule.microbatches,
                             plan.stage_count(), plan.microbatches));
  const Schedule passes = passes_of(answer.schedule);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const auto [got, wanted] = std::ranges::mismatch(passes.stages[s], plan.stages[s]);
    if (got == passes.stages[s].end() && wanted == plan.stages[s].end()) continue;
    stop(answer, fmt::format("the passes of stage {} are not those of the plan: {} where {} should "
                             "be. Messages are added; passes stay, in their order",
                             s, got == passes.stages[s].end() ? "nothing" : to_string(*got),
                             wanted == plan.stages[s].end() ? "nothing" : to_string(*wanted)));
  }
  if (plan.stage_count() > 1 && !answer.schedule.has_messages())
    stop(answer, "there is no message in it: this is the plan as it came");
}

/// Why the stages wait in a circle, if it is for the reason that task 3 shows.
std::string naive_hint(const Schedule& program) {
  bool any_posted = false;
  for (const ActionList& list : program.stages)
    for (const Action& action : list) any_posted = any_posted || action.posted;
  return any_posted ? "" : "\nno message is posted: see the circle that task 3 ends in";
}

void expect_no_deadlock(const Answer& answer) {
  if (const auto fault = lab::validate(answer.schedule))
    stop(answer, fault->message + (fault->cycle.empty() ? "" : naive_hint(answer.schedule)));
}

/// Costs of equal stages, and of stages that differ.
std::vector<std::vector<StageCosts>> all_costs(int stages) {
  std::vector<std::vector<StageCosts>> all = {{{.forward = 1, .backward = 2, .message = 0}},
                                              {{.forward = 1, .backward = 1, .message = 0}},
                                              {{.forward = 3, .backward = 2, .message = 0}}};
  std::vector<StageCosts>& uneven = all.emplace_back();
  for (int s = 0; s < stages; ++s)
    uneven.push_back({.forward = 1.0 + s % 3, .backward = 2.0 + 3 * (s % 2), .message = 0});
  return all;
}

void expect_no_delay(const Answer& answer, const Schedule& plan) {
  for (const std::vector<StageCosts>& costs : all_costs(plan.stage_count())) {
    const double time = lab::makespan(lab::simulate(answer.schedule, costs));
    const double planned = lab::makespan(lab::simulate(plan, costs));
    if (time > planned + kExact)
      stop(answer, fmt::format("slower than the plan: {} units of time instead of {}, although its "
                               "messages take none: some stage waits in a message that it could "
                               "have posted",
                               time, planned));
  }
}

void expect_program(const Answer& answer, const Schedule& plan) {
  expect_passes(answer, plan);
  expect_no_deadlock(answer);
  expect_no_delay(answer, plan);
}

void expect_programs(const std::vector<Question>& questions) {
  const std::vector<Answer> all = answers(questions);
  for (size_t i = 0; i < all.size(); ++i) expect_program(all[i], questions[i].plan);
}

std::vector<Question> grid_of(Question (*make)(const Size&)) {
  std::vector<Question> questions;
  for (const Size& size : grid()) questions.push_back(make(size));
  return questions;
}

TEST(Task5, Gpipe) { expect_programs(grid_of(gpipe_question)); }

TEST(Task5, OneForwardOneBackward) { expect_programs(grid_of(one_f_one_b_question)); }

TEST(Task5, AnyPlan) {
  std::vector<Question> questions;
  for (int stages = 2; stages <= 6; ++stages)
    for (int m = 1; m <= 8; ++m)
      questions.push_back(random_question(
          {stages, m}, 100 * static_cast<uint64_t>(stages) + static_cast<uint64_t>(m)));
  expect_programs(questions);
}

/// Executes what with_messages makes of a plan with the given executor.
void expect_to_run(const Question& question, const lab::grading::GroupOptions& options) {
  const Answer answer = answers({question})[0];
  expect_passes(answer, question.plan);
  expect_no_deadlock(answer);
  expect_wave({.schedule = answer.schedule}, options);
}

TEST(Task5, OnANetworkThatBuffersNothing) {
  expect_to_run(one_f_one_b_question({4, 6}), late(51, lab::grading::Functions::kGiven));
  expect_to_run(random_question({3, 5}, 52), late(52, lab::grading::Functions::kGiven));
}

TEST(Task5, OverGloo) {
  expect_to_run(one_f_one_b_question({3, 6}), over_gloo(lab::grading::Functions::kGiven));
}

}  // namespace
}  // namespace lab05
