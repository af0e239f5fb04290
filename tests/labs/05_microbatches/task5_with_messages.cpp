// Task 5: programs that cannot deadlock, and whose messages cost no time and little memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "common/pipeline/simulate.h"
#include "common/pipeline/validate.h"
#include "tests/labs/05_microbatches/plans.h"
#include "tests/labs/05_microbatches/waves.h"

namespace lab05::task5 {
namespace {

using lab::Action;
using lab::ActionList;
using lab::Schedule;
using lab::StageCosts;

constexpr double kExact = 1e-9;
const std::string kFunction = "with_messages";

bool any_posted(const Schedule& program) {
  return std::ranges::any_of(program.stages, [](const ActionList& list) {
    return std::ranges::any_of(list, &Action::posted);
  });
}

void expect_no_deadlock(const Question& question, const Schedule& answer) {
  const auto fault = lab::validate(answer);
  if (!fault) return;
  const bool naive = !fault->cycle.empty() && !any_posted(answer);
  stop(question, answer,
       fault->message +
           (naive ? "\nno message is posted: see the deadlock in which task 3 ends" : ""));
}

/// Costs of equal stages, and of stages that differ; no pass is shorter than 1.
std::vector<std::vector<StageCosts>> all_costs(int stages, double message) {
  std::vector<std::vector<StageCosts>> all = {{{.forward = 1, .backward = 2, .message = message}},
                                              {{.forward = 1, .backward = 1, .message = message}},
                                              {{.forward = 3, .backward = 2, .message = message}}};
  for (const int variant : {0, 1}) {
    std::vector<StageCosts>& uneven = all.emplace_back();
    for (int s = 0; s < stages; ++s)
      uneven.push_back({.forward = 1.0 + (s + variant) % 3,
                        .backward = 2.0 + 3 * ((s + variant) % 2),
                        .message = message});
  }
  return all;
}

/// The first action of a stage that does something wrong, and the stage; none if there is none.
using Found = std::optional<std::pair<size_t, Action>>;
Found find_action(const Schedule& program,
                  const std::function<bool(const ActionList& list, size_t place)>& wrong) {
  for (size_t s = 0; s < program.stages.size(); ++s)
    for (size_t i = 0; i < program.stages[s].size(); ++i)
      if (wrong(program.stages[s], i)) return std::pair(s, program.stages[s][i]);
  return std::nullopt;
}

bool blocking_send(const ActionList& list, size_t i) {
  return is_send(list[i].kind) && !list[i].posted;
}
/// One directly before the pass that reads it costs nothing.
bool blocking_recv(const ActionList& list, size_t i) {
  return is_recv(list[i]) && !list[i].posted && list[i + 1] != reader_of(list[i]);
}

/// Another pass stands between it and the one that makes what it sends.
bool late_send(const ActionList& list, size_t i) {
  if (!is_send(list[i].kind)) return false;
  const int sent = list[i].microbatch;
  while (i-- > 0)
    if (!is_message(list[i].kind)) return list[i].microbatch != sent;
  return false;
}

/// Why it is slow even if messages take no time.
std::string cause_of_wait(const Schedule& program) {
  for (const auto& wrong : {blocking_recv, blocking_send})
    if (const Found found = find_action(program, wrong))
      return fmt::format("stage {} waits in {}: post it", found->first, to_string(found->second));
  if (const Found send = find_action(program, late_send))
    return fmt::format(
        "stage {} sends {} later than it could: a send can begin right after the pass that makes "
        "its data",
        send->first, to_string(send->second));
  return "some message begins later than it could";
}

/// Why it is slow when messages take time.
std::string cause_of_delay(const Schedule& program) {
  if (const Found send = find_action(program, blocking_send))
    return fmt::format("Stage {} waits in {} until the data has arrived: post it", send->first,
                       to_string(send->second));
  const auto late_recv = [](const ActionList& list, size_t i) {
    return is_recv(list[i]) && i > 1 && list[i + 1] == reader_of(list[i]);
  };
  if (const Found recv = find_action(program, late_recv))
    return fmt::format(
        "A message begins when both sides have begun it, but stage {} begins {} just before {}: "
        "post it earlier, so that the message travels during another pass",
        recv->first, to_string(recv->second), to_string(reader_of(recv->second)));
  if (const Found recv = find_action(program, blocking_recv))
    return fmt::format("Stage {} waits in {}, though {} comes later: post it", recv->first,
                       to_string(recv->second), to_string(reader_of(recv->second)));
  return "Some message begins later than it could";
}

void expect_no_delay(const Question& question, const Schedule& answer) {
  for (const double message : {0.0, 0.5, 1.0})
    for (const std::vector<StageCosts>& costs : all_costs(question.size.stages, message)) {
      const double time = lab::makespan(lab::simulate(answer, costs));
      const double planned = lab::makespan(lab::simulate(question.plan, costs));
      if (time <= planned + kExact) continue;
      if (message == 0)
        stop(question, answer,
             fmt::format("slower than the schedule: {} units of time instead of {}, although its "
                         "messages take none: {}",
                         time, planned, cause_of_wait(answer)));
      stop(question, answer,
           fmt::format("slower than the schedule where a message takes {} and the shortest pass 1: "
                       "{} units of time instead of {}. {}",
                       message, time, planned, cause_of_delay(answer)));
    }
}

void expect_few_open_recvs(const Question& question, const Schedule& answer) {
  for (size_t s = 0; s < answer.stages.size(); ++s) {
    ActionList open;
    for (const Action& action : answer.stages[s]) {
      if (is_recv(action)) open.push_back(action);
      std::erase_if(open, [&](const Action& recv) { return reader_of(recv) == action; });
      if (open.size() > 2)
        stop(
            question, answer,
            fmt::format("stage {} has begun {} before any of the passes that read them: each needs "
                        "a tensor until then, which makes {} at once; two at once are enough",
                        s, in_words(open), open.size()));
    }
  }
}

void expect_program(const Question& question, const Schedule& answer) {
  expect_passes(question, answer);
  expect_no_deadlock(question, answer);
  expect_no_delay(question, answer);
  expect_few_open_recvs(question, answer);
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
  judge_waves(waves, 3, lab::grading::late_messages(52, {"4b"}));
}

}  // namespace
}  // namespace lab05::task5
