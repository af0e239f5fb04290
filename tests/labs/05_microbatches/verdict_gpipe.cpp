// Verdict on task 1: GPipe as a plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/labs/05_microbatches/verdict_schedules.h"

namespace lab05 {
namespace {

using lab::Action;
using lab::ActionKind;
using lab::ActionList;

std::vector<Answer> answers() { return ask_for_plans("gpipe", grid()); }

/// What a stage's list has of one kind of passes.
ActionList only(ActionKind kind, const ActionList& list) {
  ActionList passes;
  for (const Action& action : list)
    if (action.kind == kind) passes.push_back(action);
  return passes;
}

void expect_gpipe(const Answer& answer) {
  expect_plan(answer);
  const lab::Schedule right = gpipe_plan(answer.size);
  for (size_t s = 0; s < right.stages.size(); ++s) {
    const ActionList& list = answer.schedule.stages[s];
    bool backward = false;
    for (const Action& action : list) {
      if (backward && action.kind == ActionKind::kForward)
        stop(answer, fmt::format("stage {}: {} comes after a backward: GPipe does all forwards, "
                                 "then all backwards",
                                 s, to_string(action)));
      backward = backward || action.kind == ActionKind::kBackward;
    }
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward})
      if (only(kind, list) != only(kind, right.stages[s]))
        stop(answer, fmt::format("stage {}: the {} are not in the order of the microbatches", s,
                                 kind == ActionKind::kForward ? "forwards" : "backwards"));
  }
}

TEST(Task1, AllForwardsThenAllBackwards) {
  for (const Answer& answer : answers()) expect_gpipe(answer);
}

TEST(Task1, EveryMicrobatchIsInFlightAtOnce) {
  for (const Answer& answer : answers())
    expect_peaks(answer, [&](int) { return answer.size.microbatches; });
}

TEST(Task1, TheBubbleIsThatOfTheTheory) {
  for (const Answer& answer : answers()) expect_ideal_time(answer);
}

}  // namespace
}  // namespace lab05
