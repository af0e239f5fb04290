// Verdict on task 3: the naive program, and that it deadlocks.
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
using lab::grading::Functions;
using lab::grading::Parcel;

const std::string kFunction = "with_blocking_messages";

std::vector<Answer> answers(const std::vector<Question>& questions) {
  return ask_for_programs(kFunction, questions);
}

/// A message that this stage does not have; empty if it may.
std::string why_not(const Action& action, bool first, bool last) {
  if (first && action.kind == ActionKind::kRecvActivation)
    return "the first stage receives no activation: it reads the tokens";
  if (first && action.kind == ActionKind::kSendGradient)
    return "the first stage sends no gradient: nobody is before it";
  if (last && action.kind == ActionKind::kSendActivation)
    return "the last stage sends no activation: it computes the loss";
  if (last && action.kind == ActionKind::kRecvGradient)
    return "the last stage receives no gradient: its own loss gives it";
  return "";
}

void expect_list(const Answer& answer, size_t stage, const ActionList& right) {
  const ActionList& list = answer.schedule.stages[stage];
  const bool first = stage == 0;
  const bool last = stage + 1 == answer.schedule.stages.size();
  for (const Action& action : list) {
    if (action.posted)
      stop(answer, fmt::format("stage {}: {} is posted: this cannot deadlock; task 3 wants the "
                               "naive order, in which every message blocks",
                               stage, to_string(action)));
    if (const std::string reason = why_not(action, first, last); !reason.empty())
      stop(answer, fmt::format("stage {}: {}, but {}", stage, to_string(action), reason));
  }
  const auto [got, wanted] = std::ranges::mismatch(list, right);
  if (got == list.end() && wanted == right.end()) return;
  stop(answer,
       fmt::format("stage {}, action {}: {} where {} should be: just before a pass what it reads, "
                   "just after it what it has made\n  it should be: {}",
                   stage, got - list.begin() + 1, got == list.end() ? "nothing" : to_string(*got),
                   wanted == right.end() ? "nothing more" : to_string(*wanted), in_words(right)));
}

void expect_naive(const Answer& answer, const lab::Schedule& plan) {
  const lab::Schedule right = with_all_messages(plan, /*posted_sends=*/false);
  if (answer.schedule.stage_count() != right.stage_count())
    stop(answer, fmt::format("it has {} stages, the plan has {}", answer.schedule.stage_count(),
                             right.stage_count()));
  if (answer.schedule.microbatches != right.microbatches)
    stop(answer, fmt::format("Schedule::microbatches is {}, the plan's is {}",
                             answer.schedule.microbatches, right.microbatches));
  for (size_t s = 0; s < right.stages.size(); ++s) expect_list(answer, s, right.stages[s]);
}

void expect_naive(const std::vector<Question>& questions) {
  const std::vector<Answer> all = answers(questions);
  for (size_t i = 0; i < all.size(); ++i) expect_naive(all[i], questions[i].plan);
}

/// Two stages or more, and two microbatches or more.
std::vector<Question> several_of(Question (*make)(const Size&)) {
  std::vector<Question> questions;
  for (const Size& size : {Size{2, 2}, Size{2, 5}, Size{3, 2}, Size{3, 6}, Size{4, 4}, Size{6, 3}})
    questions.push_back(make(size));
  return questions;
}

TEST(Task3, MessagesAroundEveryPass) {
  std::vector<Question> questions;
  for (const Size& size : grid())
    if (size.stages <= 6) {
      questions.push_back(gpipe_question(size));
      questions.push_back(one_f_one_b_question(size));
    }
  expect_naive(questions);
}

TEST(Task3, AnyPlan) {
  std::vector<Question> questions;
  for (int stages = 1; stages <= 5; ++stages)
    for (int m = 1; m <= 6; ++m)
      questions.push_back(random_question(
          {stages, m}, 10 * static_cast<uint64_t>(stages) + static_cast<uint64_t>(m)));
  expect_naive(questions);
}

TEST(Task3, GpipeComesToItsEnd) {
  for (const Answer& answer : answers(several_of(gpipe_question)))
    if (const auto fault = lab::validate(answer.schedule)) stop(answer, fault->message);
}

TEST(Task3, OneForwardOneBackwardDeadlocks) {
  for (const Answer& answer : answers(several_of(one_f_one_b_question))) {
    const auto fault = lab::validate(answer.schedule);
    if (!fault)
      stop(answer,
           "this cannot deadlock; task 3 wants the naive order, in which every message "
           "blocks");
    if (fault->cycle.empty()) stop(answer, fault->message);
  }
}

TEST(Task3, TheDeadlockIsReal) {
  const Answer answer = answers({one_f_one_b_question({3, 4})})[0];
  if (const auto fault = lab::validate(answer.schedule); fault && fault->cycle.empty())
    stop(answer, fault->message);
  Parcel input;
  input.set_text("schedule", to_text(answer.schedule));
  const Parcel end = lab::grading::student("to_the_end", input, Functions::kGiven);
  if (end.number("deadlock") == 1) return;
  if (end.text("diagnosis").empty() && end.text("errors").empty())
    stop(answer,
         "executed by three ranks, this comes to its end; task 3 wants the naive order, "
         "which deadlocks");
  stop(answer,
       fmt::format("executed by three ranks, this ends in another way than a deadlock\n{}{}",
                   end.text("diagnosis"), end.text("errors")));
}

}  // namespace
}  // namespace lab05
