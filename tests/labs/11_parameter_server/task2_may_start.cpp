// Task 2: staleness stays within its bound, and no worker waits needlessly.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/grading/verdict.h"
#include "tests/labs/11_parameter_server/scripts.h"
#include "tests/labs/11_parameter_server/staleness.h"

namespace lab11::task2 {
namespace {

using entries::kMayStart;
using entries::kPull;
using entries::kPush;

/// A slow worker 0 holds its ticket while worker 1 goes on, and is asked about before every pull.
Script slow_and_fast(int64_t n, int64_t s) {
  Script script{.name = fmt::format("a slow and a fast worker, n = {}, s = {}", n, s),
                .n = n,
                .s = s,
                .steps = {{kMayStart}, {kPull, 0}}};
  for (int64_t ticket = 1; ticket < n * (s + 1); ++ticket)
    for (const Step& step : {Step{kMayStart}, Step{kPull, 1}, Step{kPush, ticket, 2}})
      script.steps.push_back(step);
  for (const Step& step : {Step{kMayStart}, Step{kPush, 0, 1}, Step{kMayStart}, Step{kPull, 1}})
    script.steps.push_back(step);
  return script;
}

/// Worker 0 has held its ticket, for the first item of an update, since version `since`. Others
/// have used many tickets since then, and still hold `others`. One more is just allowed, or just
/// too many.
Asked slow_and_many(int64_t n, int64_t s, int64_t since, int64_t others, bool allowed) {
  const int64_t handed_out = n * (s + 1) - (allowed ? 1 : 0);  // since then
  others = std::min(others, handed_out - 1);
  const int64_t arrived = handed_out - 1 - others;
  Asked asked{.n = n, .s = s};
  State& state = asked.state;
  state.version = since + arrived / n;
  state.gradients = arrived % n;
  state.samples = state.gradients;
  state.next_item = state.next_ticket = since * n + handed_out;
  state.leases[since * n] = {.worker = 0, .item = since * n, .version = since};
  for (int64_t k = 1; k <= others; ++k)
    state.leases[state.next_ticket - k] = {
        .worker = k, .item = state.next_item - k, .version = state.version};
  return asked;
}

/// States that servers come to.
std::vector<Asked> drawn_states(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Asked> states;
  while (states.size() < 500) {
    const int steps = random() % 20 == 0 ? 250 : static_cast<int>(random() % 60);
    const Oracle server = drawn_server(random, steps).server;
    states.push_back({server.n(), server.s(), server.items(), server.state()});
  }
  constexpr int64_t kLarge = int64_t{1} << 33;
  for (const int64_t s : {int64_t{0}, int64_t{4}, int64_t{150}, int64_t{999}, int64_t{31'000},
                          kLarge + 7, int64_t{1'000'000'000'000}})
    for (const int64_t n : {1, 2, 12, 150})
      for (const bool allowed : {true, false})
        if (n * (s + 1) > 1)
          states.push_back(slow_and_many(n, s, allowed ? kLarge + 1 : 0,
                                         static_cast<int64_t>(random() % 200), allowed));
  return states;
}

TEST(Task2, EachState) {
  const std::vector<Asked> states = drawn_states(20 + lab::grading::scenario_seed());
  lab::grading::Call call{.scenario = "may_start",
                          .inputs = std::vector<lab::grading::Parcel>(1),
                          .name = "many states"};
  std::vector<double> numbers;
  for (const Asked& asked : states) {
    for (const int64_t number : {asked.n, asked.s, asked.items})
      numbers.push_back(static_cast<double>(number));
    write_state(asked.state, numbers);
  }
  call.inputs[0].set("states", numbers);
  lab::grading::judge_calls({call}, {.network = lab::grading::Network::kNone},
                            [&](size_t, const std::vector<lab::grading::Parcel>& ranks) {
                              std::vector<Asked> answered = states;
                              const std::vector<double> answers = ranks[0].numbers("answers");
                              for (size_t k = 0; k < states.size(); ++k)
                                answered[k].answer = answers.at(k) != 0;
                              judge_all(answered);
                            });
}

TEST(Task2, ByHand) {
  expect_scripts({slow_and_fast(1, 0), slow_and_fast(2, 0), slow_and_fast(3, 1),
                  slow_and_fast(1, 2), slow_and_fast(4, 4)},
                 "2");
}

TEST(Task2, NobodyPushes) {
  Script script{.name = "many pulls and no push", .n = 2, .s = 1};
  for (int64_t w = 0; w < 6; ++w) {
    script.steps.push_back({kMayStart});
    script.steps.push_back({kPull, w});
  }
  Script any = script;
  any.s = kUnbounded;
  any.name = "many pulls and no bound";
  expect_scripts({script, any}, "2");
}

TEST(Task2, Drawn) { expect_scripts(drawn_scripts(2000 * lab::grading::scenario_seed(), 60), "2"); }

TEST(Task2, Schedules) { expect_schedules("2", 5, 50); }

TEST(Task2, ASlowWorkerDoesNotHoldUpTheOthers) {
  const std::vector<double> compute_s{1, 3, 1, 1};
  const double synchronous = calm_seconds("2", 4, 0, 120, compute_s);
  const double bounded = calm_seconds("2", 4, 4, 120, compute_s);
  if (synchronous < 2.5 * bounded - 1e-6)
    lab::grading::stop(fmt::format(
        "with s = 4 the fast workers still wait for the slow one\n120 gradients take {:g} s of "
        "simulated time with s = 0 and {:g} s with s = 4: expected at most {:g} s",
        synchronous, bounded, synchronous / 2.5));
}

}  // namespace
}  // namespace lab11::task2
