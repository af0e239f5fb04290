// Task 1: GPipe as a schedule, for every number of stages and microbatches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/labs/05_microbatches/plans.h"

namespace lab05::task1 {
namespace {

using lab::Action;
using lab::ActionKind;
using lab::ActionList;
using lab::Schedule;

/// What a stage's list has of one kind of passes.
ActionList only(ActionKind kind, ActionList list) {
  std::erase_if(list, [kind](const Action& action) { return action.kind != kind; });
  return list;
}

void expect_gpipe(const Question& question, const Schedule& answer) {
  expect_plan(question, answer, "");
  const Schedule right = gpipe_plan(question.size);
  for (size_t s = 0; s < right.stages.size(); ++s) {
    const ActionList& list = answer.stages[s];
    const auto backward = std::ranges::find(list, ActionKind::kBackward, &Action::kind);
    const auto late = std::find_if(backward, list.end(), [](const Action& action) {
      return action.kind == ActionKind::kForward;
    });
    if (late != list.end())
      stop(question, answer,
           fmt::format("stage {}: {} comes after a backward: GPipe does all forwards, then all "
                       "backwards, on every stage",
                       s, to_string(*late)));
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward})
      if (only(kind, list) != only(kind, right.stages[s]))
        stop(question, answer,
             fmt::format("stage {}: the {} are not in the order of the microbatches", s,
                         kind == ActionKind::kForward ? "forwards" : "backwards"));
  }
}

TEST(Task1, AllForwardsThenAllBackwards) {
  std::vector<Question> questions;
  for (const Size& size : all_sizes()) questions.push_back(about_size("gpipe", size));
  judge_schedules("gpipe", questions, expect_gpipe);
}

}  // namespace
}  // namespace lab05::task1
