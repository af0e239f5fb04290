// Task 2: staleness stays within its bound, and no worker waits needlessly.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/grading/verdict.h"
#include "tests/labs/11_parameter_server/scripts.h"
#include "tests/labs/11_parameter_server/staleness.h"

namespace lab11 {
namespace {

using entries::kMayStart;
using entries::kPull;
using entries::kPush;

constexpr int64_t kUnbounded = int64_t{1} << 62;

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

/// States that a server can be in, and some next to them.
std::vector<Asked> drawn_states(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  std::vector<Asked> states;
  for (int k = 0; k < 400; ++k) {
    Asked asked{.n = 1 + below(4), .s = below(10) == 0 ? kUnbounded : below(5)};
    asked.state.version = below(8);
    asked.state.gradients = below(asked.n);
    for (int64_t left = below(8), ticket = 0; left > 0; --left, ++ticket)
      asked.state.leases[ticket].version =
          std::max<int64_t>(0, asked.state.version - below(std::min<int64_t>(asked.s, 5) + 1));
    states.push_back(asked);
  }
  return states;
}

TEST(Task2, EachState) {
  const std::vector<Asked> states = drawn_states(20 + lab::grading::scenario_seed());
  lab::grading::Call call{.scenario = "may_start",
                          .inputs = std::vector<lab::grading::Parcel>(1),
                          .name = "many states"};
  std::vector<double> numbers;
  for (const Asked& asked : states) {
    for (const int64_t number : {asked.n, asked.s, asked.state.version, asked.state.gradients,
                                 static_cast<int64_t>(asked.state.leases.size())})
      numbers.push_back(static_cast<double>(number));
    for (const auto& [ticket, lease] : asked.state.leases)
      numbers.push_back(static_cast<double>(lease.version));
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

TEST(Task2, Drawn) {
  std::vector<Script> scripts;
  for (uint64_t k = 0; k < 60; ++k)
    scripts.push_back(drawn_script(2000 * lab::grading::scenario_seed() + k));
  expect_scripts(scripts, "2");
}

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
}  // namespace lab11
