// Task 3: the naive program, which deadlocks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/pipeline/validate.h"
#include "tests/labs/05_microbatches/plans.h"

namespace lab05::task3 {
namespace {

using lab::ActionList;
using lab::Schedule;

constexpr const char* kNaive =
    "receive just before the pass that reads the data, send just after the pass that makes it";

/// Where the naive order deadlocks, the answer has to.
void expect_deadlock(const Question& question, const Schedule& answer, const Schedule& right) {
  const auto wanted = lab::validate(right);
  const auto got = lab::validate(answer);
  if (wanted && !got)
    stop(question, answer,
         fmt::format("this cannot deadlock; task 3 wants the naive order, in which every message "
                     "blocks: {}",
                     kNaive));
  if (got &&
      got->cycle.empty())  // a message too many, or missing, or on the wrong side of its pass
    stop(question, answer, fmt::format("{}\n{}", got->message, kNaive));
}

void expect_naive(const Question& question, const Schedule& answer) {
  expect_passes(question, answer);
  for (size_t s = 0; s < answer.stages.size(); ++s)
    for (const lab::Action& action : answer.stages[s])
      if (action.posted)
        stop(question, answer,
             fmt::format("stage {}: {} is posted: task 3 wants the naive order, in which every "
                         "message blocks",
                         s, to_string(action)));
  const Schedule right = with_messages_beside(question.plan, /*posted_sends=*/false);
  expect_deadlock(question, answer, right);
  for (size_t s = 0; s < right.stages.size(); ++s) {
    const ActionList& list = answer.stages[s];
    const auto [got, wanted] = std::ranges::mismatch(list, right.stages[s]);
    if (got == list.end() && wanted == right.stages[s].end()) continue;
    stop(question, answer,
         fmt::format("stage {}, action {}: {} where {} should be: {}; it should be\n  {}", s,
                     got - list.begin() + 1, got == list.end() ? "nothing" : to_string(*got),
                     wanted == right.stages[s].end() ? "nothing more" : to_string(*wanted), kNaive,
                     in_words(right.stages[s])));
  }
}

void expect_naive_programs(const std::vector<std::string>& kinds) {
  const std::string function = "with_blocking_messages";
  std::vector<Question> questions;
  uint64_t seed = 1000 * lab::grading::scenario_seed();
  for (const Size& size : all_sizes()) {
    ++seed;
    questions.push_back(about_plan(function, kinds[seed % kinds.size()], size, seed));
  }
  judge_schedules(function, questions, expect_naive);
}

TEST(Task3, OneForwardOneBackwardAndGpipe) { expect_naive_programs({"GPipe", "1F1B"}); }

TEST(Task3, AnyPlan) { expect_naive_programs({"another order"}); }

}  // namespace
}  // namespace lab05::task3
