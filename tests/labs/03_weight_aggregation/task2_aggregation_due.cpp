// Task 2: one question asked many times, in any order.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "tests/grading/training_oracle.h"
#include "tests/grading/verdict.h"

namespace lab03::task2 {
namespace {

using lab::grading::Numbers;
using lab::grading::Parcel;

struct Question {
  int64_t step = 1;
  int64_t every = 1;
};
using Questions = std::vector<Question>;
using Rule = std::function<bool(int64_t step, int64_t every)>;

struct WrongRule {
  Rule rule;
  std::string message;
};

const std::vector<WrongRule>& wrong_rules() {
  static const std::vector<WrongRule> rules = {
      {[](int64_t s, int64_t k) { return (s - 1) % k == 0; },
       "one step too early in every round, beginning with step 1: steps are counted from 1, so the "
       "first average comes after step k"},
      {[](int64_t s, int64_t k) { return s % k == 1; },
       "due after the first step of each round, not after the last, and never with every = 1"},
      {[](int64_t s, int64_t k) { return s == 1 || s % k == 0; },
       "due after step 1 as well: the first average comes after step k"},
      {[](int64_t s, int64_t k) { return (s + 1) % k == 0; },
       "one step too early: the average follows the k-th step of a round; steps are counted from "
       "1"},
      {[](int64_t s, int64_t k) { return s % (k + 1) == 0; },
       "k is off by one: a round has k + 1 local steps"},
      {[](int64_t s, int64_t k) { return k == 1 || s % (k - 1) == 0; },
       "k is off by one: a round has k - 1 local steps"},
      {[](int64_t s, int64_t k) { return s > 1 && (s - 1) % k == 0; },
       "one step too late: a round has k local steps, and the average follows the k-th"},
      {[](int64_t s, int64_t k) { return s % k != 0; },
       "the wrong way round: due in all steps but the right ones"},
      {[](int64_t, int64_t) { return true; }, "due after every step"},
      {[](int64_t, int64_t) { return false; }, "never due"},
      {[](int64_t s, int64_t k) { return k > 1 && s % k == 0; },
       "never due with every = 1: then every step is followed by an average"},
      {[](int64_t s, int64_t k) { return s > k && s % k == 0; },
       "not due after step k: the first average comes after step k, and not only after 2k"},
      {[](int64_t s, int64_t k) { return s == k; },
       "due only once, after step k, and not after 2k, 3k, ..."},
      {[](int64_t s, int64_t k) { return (s & (k - 1)) == 0; },
       "step & (every - 1) is the remainder for powers of two only: k may be any number"},
      {[](int64_t s, int64_t k) {
         const auto narrow = static_cast<int32_t>(k);
         return narrow != 0 && static_cast<int32_t>(s) % narrow == 0;
       },
       "wrong beyond 2^31: step and every are int64_t, and must not be narrowed to 32 bits"},
      {[](int64_t s, int64_t k) {
         const float ratio = static_cast<float>(s) / static_cast<float>(k);
         return ratio == std::floor(ratio);
       },
       "wrong for large steps: a float cannot tell numbers beyond 2^24 apart; % on integers can"},
  };
  return rules;
}

std::string listed(const std::set<int64_t>& steps) {
  constexpr size_t kMost = 8;
  std::vector<int64_t> first(steps.begin(), steps.end());
  const bool cut = first.size() > kMost;
  if (cut) first.resize(kMost);
  return steps.empty() ? "none" : fmt::format("{}{}", fmt::join(first, ", "), cut ? ", ..." : "");
}

/// For the k of the first wrong answer: when it should be due, and when it is.
std::string seen(const Questions& questions, const Numbers& due, const Question& wrong) {
  std::set<int64_t> right_steps;
  std::set<int64_t> steps;
  for (size_t i = 0; i < questions.size(); ++i) {
    const auto [step, every] = questions[i];
    if (every != wrong.every) continue;
    if (step % every == 0) right_steps.insert(step);
    if (due[i] != 0) steps.insert(step);
  }
  return fmt::format(
      "\nstep = {}, every = {}: {}; of the steps asked about, an average should be due after {}; "
      "the answers say after {}",
      wrong.step, wrong.every,
      wrong.step % wrong.every == 0 ? "due, but the answer is false"
                                    : "not due, but the answer is true",
      listed(right_steps), listed(steps));
}

void judge(const Questions& questions, const Numbers& due) {
  const auto follows = [&](const Rule& rule) {
    for (size_t i = 0; i < questions.size(); ++i)
      if ((due[i] != 0) != rule(questions[i].step, questions[i].every)) return false;
    return true;
  };
  const Rule right = [](int64_t s, int64_t k) { return s % k == 0; };
  if (follows(right)) return;
  std::map<std::pair<int64_t, int64_t>, bool> answers;
  for (size_t i = 0; i < questions.size(); ++i) {
    const auto [step, every] = questions[i];
    if (answers.try_emplace({step, every}, due[i] != 0).first->second != (due[i] != 0))
      lab::grading::stop(fmt::format(
          "asked twice about the same step, it gives two answers: step and every alone decide, "
          "not what was asked before\nstep = {}, every = {}: {}due in a later call",
          step, every, due[i] != 0 ? "" : "not "));
  }
  size_t wrong = 0;
  while ((due[wrong] != 0) == right(questions[wrong].step, questions[wrong].every)) ++wrong;
  std::string message = "due after the wrong steps";
  for (const WrongRule& known : wrong_rules())
    if (follows(known.rule)) {
      message = known.message;
      break;
    }
  lab::grading::stop(message + seen(questions, due, questions[wrong]));
}

/// Every call is a list of questions.
void expect_answers(const std::vector<Questions>& lists) {
  std::vector<lab::grading::Call> calls;
  for (const Questions& questions : lists) {
    Numbers steps;
    Numbers every;
    for (const Question& question : questions) {
      steps.push_back(static_cast<double>(question.step));
      every.push_back(static_cast<double>(question.every));
    }
    Parcel input;
    input.set("steps", steps);
    input.set("every", every);
    calls.push_back({.scenario = "aggregation_due", .inputs = {input}});
  }
  judge_calls(calls, {.network = lab::grading::Network::kNone},
              [&](size_t k, const std::vector<Parcel>& ranks) {
                judge(lists[k], ranks[0].numbers("due"));
              });
}

Questions steps_of(const std::vector<int64_t>& every, int64_t first, int64_t last) {
  Questions questions;
  for (const int64_t k : every)
    for (int64_t step = first; step <= last; ++step) questions.push_back({step, k});
  return questions;
}

/// Everything is asked twice.
Questions shuffled(Questions questions, uint64_t seed) {
  questions.insert(questions.end(), questions.begin(), questions.end());
  std::mt19937_64 generator(seed);
  for (size_t i = questions.size(); i > 1; --i)
    std::swap(questions[i - 1], questions[generator() % i]);
  return questions;
}

TEST(Task2, AfterEveryKSteps) {
  Questions questions = steps_of({3, 1, 2, 8, 5, 12}, 1, 40);
  questions.insert(questions.end(), questions.begin(), questions.end());
  expect_answers({questions});
}

TEST(Task2, InAnyOrder) {
  const Questions questions = steps_of({7, 1, 6, 8, 50, 100}, 1, 110);
  expect_answers({shuffled(questions, lab::grading::scenario_seed() + 1), questions,
                  shuffled(questions, lab::grading::scenario_seed() + 2)});
}

/// What k steps are in fractions: 49 * (1.0 / 49) is not 1.
TEST(Task2, EveryKAtItsFirstMultiples) {
  Questions questions;
  for (int64_t k = 1; k <= 1000; ++k)
    for (const int64_t step : {k - 1, k, k + 1, 3 * k})
      if (step > 0) questions.push_back({step, k});
  expect_answers({questions});
}

TEST(Task2, LateInALongRun) {
  constexpr int64_t kLate = int64_t{1} << 33;
  expect_answers({steps_of({500, 8, 3}, 16'777'210, 16'777'230),
                  steps_of({500, 7}, 2'999'999'990, 3'000'000'010)});
  // In separate processes: a k that is narrowed to 0 ends them.
  expect_answers({steps_of({1000, 9, kLate / 2}, kLate - 9, kLate + 9),
                  steps_of({kLate, kLate + 1}, kLate - 1, kLate + 2)});
}

}  // namespace
}  // namespace lab03::task2
