// Verdict on task 2: 1F1B as a plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/pipeline/validate.h"
#include "tests/labs/05_microbatches/verdict_schedules.h"

namespace lab05 {
namespace {

using lab::Action;
using lab::ActionKind;
using lab::ActionList;

std::vector<Answer> answers() { return ask_for_plans("one_f_one_b", grid()); }

/// Forwards before the first backward: the warm-up, and the first of the steady state.
int leading_forwards(const ActionList& list) {
  const auto first = std::ranges::find(list, ActionKind::kBackward, &Action::kind);
  return static_cast<int>(first - list.begin());
}

bool has_several(const Answer& answer) {
  return answer.size.stages > 1 && answer.size.microbatches > 1;
}

void expect_no_gpipe(const std::vector<Answer>& all) {
  const Answer* gpipe = nullptr;  // where it differs from 1F1B
  for (const Answer& answer : all) {
    if (!has_several(answer)) continue;
    if (answer.schedule != gpipe_plan(answer.size)) return;
    if (gpipe == nullptr) gpipe = &answer;
  }
  if (gpipe != nullptr)
    stop(*gpipe,
         "this is GPipe: all forwards, then all backwards, on every stage. In 1F1B a stage begins "
         "its backwards as soon as it can, so that fewer microbatches are in flight");
}

void expect_lists_of_their_own(const Answer& answer) {
  const std::vector<ActionList>& lists = answer.schedule.stages;
  if (has_several(answer) &&
      std::ranges::all_of(lists, [&](const ActionList& list) { return list == lists[0]; }))
    stop(answer,
         "every stage has the same list: how many forwards a stage begins with depends on how many "
         "stages are behind it");
}

void expect_warm_up(const Answer& answer, int stage) {
  const auto [p, m] = answer.size;
  const int behind = p - 1 - stage;
  const int right = std::min(behind + 1, m);
  const int got = leading_forwards(answer.schedule.stages[static_cast<size_t>(stage)]);
  if (got == right) return;
  const std::string size = got == right + 1   ? "one too many"
                           : got == right - 1 ? "one too few"
                           : got > right      ? "too many"
                                              : "too few";
  stop(answer,
       fmt::format("stage {}: its first backward comes after {} forwards, it should come after {}: "
                   "{} ({} stages are behind it, so the warm-up is min({}, {}) forwards; then the "
                   "steady state begins with one forward, if there is one left)",
                   stage, got, right, size, behind, behind, m));
}

void expect_order(const Answer& answer, int stage) {
  const ActionList& list = answer.schedule.stages[static_cast<size_t>(stage)];
  for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
    int next = 0;
    for (const Action& action : list)
      if (action.kind == kind && action.microbatch != next++)
        stop(answer, fmt::format("stage {}: {} where {} should be: {} come in the order of the "
                                 "microbatches",
                                 stage, to_string(action), to_string(Action{kind, next - 1}),
                                 kind == ActionKind::kForward ? "forwards" : "backwards"));
  }
}

void expect_turns(const Answer& answer, int stage) {
  const ActionList& list = answer.schedule.stages[static_cast<size_t>(stage)];
  const auto first = static_cast<size_t>(leading_forwards(list));
  const size_t forwards = static_cast<size_t>(answer.size.microbatches) - first;  // left to do
  for (size_t i = 0; i < 2 * forwards; ++i) {
    const Action& action = list[first + i];
    if ((action.kind == ActionKind::kBackward) != (i % 2 == 0))
      stop(answer, fmt::format("stage {}: {} after {}: in the steady state backwards and forwards "
                               "take turns",
                               stage, to_string(action), to_string(list[first + i - 1])));
  }
}

void expect_one_f_one_b(const Answer& answer) {
  expect_plan(answer);
  expect_lists_of_their_own(answer);
  for (int stage = 0; stage < answer.size.stages; ++stage) {
    expect_warm_up(answer, stage);
    expect_order(answer, stage);
    expect_turns(answer, stage);
  }
}

TEST(Task2, WarmUpSteadyStateCoolDown) {
  const std::vector<Answer> all = answers();
  expect_no_gpipe(all);
  for (const Answer& answer : all)
    if (answer.size.microbatches >= answer.size.stages) expect_one_f_one_b(answer);
}

TEST(Task2, FewerMicrobatchesThanStages) {
  for (const Answer& answer : answers())
    if (answer.size.microbatches < answer.size.stages) {
      if (const auto fault = lab::validate(answer.schedule))
        stop(answer,
             fault->message.substr(0, fault->message.find('\n')) +
                 " (there are fewer microbatches than stages: is the warm-up longer than all of "
                 "them?)");
      expect_one_f_one_b(answer);
    }
}

TEST(Task2, FewMicrobatchesAreInFlight) {
  for (const Answer& answer : answers())
    expect_peaks(answer, [&](int stage) {
      return std::min(answer.size.microbatches, answer.size.stages - stage);
    });
}

TEST(Task2, TheBubbleIsThatOfGpipe) {
  for (const Answer& answer : answers()) expect_ideal_time(answer);
}

}  // namespace
}  // namespace lab05
