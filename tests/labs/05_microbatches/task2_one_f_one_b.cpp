// Task 2: 1F1B as a schedule, for every number of stages and microbatches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/format.h"
#include "common/pipeline/validate.h"
#include "tests/labs/05_microbatches/plans.h"

namespace lab05::task2 {
namespace {

using lab::Action;
using lab::ActionKind;
using lab::ActionList;
using lab::Schedule;

/// Forwards before the first backward: the warm-up, and the first of the steady state.
int leading_forwards(const ActionList& list) {
  const auto first = std::ranges::find(list, ActionKind::kBackward, &Action::kind);
  return static_cast<int>(first - list.begin());
}

void expect_lists_of_their_own(const Question& question, const Schedule& answer) {
  if (question.size.stages == 1 || question.size.microbatches == 1) return;
  if (answer == gpipe_plan(question.size))
    stop(question, answer,
         "this is GPipe: all forwards, then all backwards, on every stage. In 1F1B a stage begins "
         "its backwards as soon as it can, so that fewer microbatches are in flight");
  if (std::ranges::all_of(answer.stages,
                          [&](const ActionList& list) { return list == answer.stages[0]; }))
    stop(question, answer,
         "every stage has the same list: how many forwards a stage begins with depends on how many "
         "stages come after it");
}

void expect_warm_up(const Question& question, const Schedule& answer, int stage) {
  const auto [p, m] = question.size;
  const int after = p - 1 - stage;
  const int right = std::min(after + 1, m);
  const int got = leading_forwards(answer.stages[static_cast<size_t>(stage)]);
  if (got == right) return;
  const std::string size = got == right + 1   ? "one too many"
                           : got == right - 1 ? "one too few"
                           : got > right      ? "too many"
                                              : "too few";
  stop(question, answer,
       fmt::format("stage {}: its first backward comes after {}, it should come after {}: "
                   "{} ({} stages come after it, so the warm-up is min({}, {}) forwards; then the "
                   "steady state begins with one forward, if there is one left)",
                   stage, lab::counted(got, "forward"), right, size, after, after, m));
}

void expect_order(const Question& question, const Schedule& answer, int stage) {
  const ActionList& list = answer.stages[static_cast<size_t>(stage)];
  for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
    int next = 0;
    for (const Action& action : list)
      if (action.kind == kind && action.microbatch != next++)
        stop(question, answer,
             fmt::format("stage {}: {} where {} should be: {} come in the order of the "
                         "microbatches",
                         stage, to_string(action), to_string(Action{kind, next - 1}),
                         kind == ActionKind::kForward ? "forwards" : "backwards"));
  }
}

void expect_turns(const Question& question, const Schedule& answer, int stage) {
  const ActionList& list = answer.stages[static_cast<size_t>(stage)];
  const Schedule right = one_f_one_b_plan(question.size);
  const auto wrong = std::ranges::mismatch(list, right.stages[static_cast<size_t>(stage)]);
  if (wrong.in1 != list.end())
    stop(question, answer,
         fmt::format("stage {}: {} after {}: in the steady state backwards and forwards take turns",
                     stage, to_string(*wrong.in1), to_string(*(wrong.in1 - 1))));
}

void expect_one_f_one_b(const Question& question, const Schedule& answer) {
  const auto fault = lab::validate(answer);
  if (fault && !fault->cycle.empty() && !answer.has_messages() &&
      answer.stage_count() == question.size.stages)  // why there is a circle
    for (int stage = 0; stage < question.size.stages; ++stage)
      expect_warm_up(question, answer, stage);
  const bool few = question.size.microbatches < question.size.stages;
  expect_plan(question, answer,
              few ? " (there are fewer microbatches than stages: does the warm-up have more "
                    "forwards than there are microbatches?)"
                  : "");
  expect_lists_of_their_own(question, answer);
  for (int stage = 0; stage < question.size.stages; ++stage) {
    expect_warm_up(question, answer, stage);
    expect_order(question, answer, stage);
    expect_turns(question, answer, stage);
  }
}

TEST(Task2, WarmUpThenSteadyStateThenCoolDown) {
  std::vector<Question> questions;
  for (const Size& size : all_sizes()) questions.push_back(about_size("one_f_one_b", size));
  judge_schedules("one_f_one_b", questions, expect_one_f_one_b);
}

}  // namespace
}  // namespace lab05::task2
