// Task 5b: the end of a federated round.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "tests/grading/verdict.h"

namespace lab11::task5b {
namespace {

using lab::Tensor;
using lab::grading::Call;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::stop;

struct Round {
  Numbers samples;
  std::vector<Numbers> weights;  // per result
};

struct Case {
  std::string name;
  double lr = 1;
  double momentum = 0;
  Numbers start = {};
  std::vector<Round> rounds = {};
  int optimizers = 1;
};

/// A wrong outer step; by default it is right.
struct Way {
  bool by_samples = true;
  bool divided = true;
  bool nesterov = true;
  bool keeps_velocity = true;
  bool velocity_only = false;  // heavy ball
  bool lr_in_velocity = false;
  bool lr_once = false;  // not on the momentum's part
  bool backwards = false;
  bool adds_average = false;      // d = average, w not subtracted
  bool ema = false;               // b = mu b + (1 - mu) d
  bool old_velocity = false;      // b of before this round in w
  bool rolls_on = false;          // rounds without results, too
  bool falls_to_zero = false;     // there, as if their average were 0
  bool whole_shares = false;      // quotients of integers
  bool decays_late = false;       // b = mu (b + d)
  bool whole_look_ahead = false;  // b instead of mu b in w
  bool rests_at_zero = false;     // b stays as it is where mu is 0
  bool counts_in_int = false;     // the samples
};

struct Outcome {
  Numbers weights;
  Numbers velocity;
};

std::vector<Outcome> outcomes(const Case& c, const Way& way = {}) {
  Numbers w = c.start, b(c.start.size(), 0.0);
  std::vector<Outcome> all;
  for (const Round& round : c.rounds) {
    double n = 0;
    for (const double samples : round.samples) n += samples;
    if (way.counts_in_int) n = static_cast<int32_t>(static_cast<int64_t>(n));
    for (size_t i = 0; i < w.size() && (n != 0 || way.rolls_on); ++i) {
      double average = n != 0 || way.falls_to_zero ? 0 : w[i];
      for (size_t r = 0; r < round.samples.size() && n != 0; ++r) {
        double share = way.by_samples ? round.samples[r] / (way.divided ? n : 1.0)
                                      : 1.0 / static_cast<double>(round.samples.size());
        if (way.whole_shares) share = std::floor(share);
        average += share * round.weights[r][i];
      }
      double d = way.adds_average ? average : average - w[i];
      if (way.backwards) d = -d;
      const double before = b[i];
      b[i] = (way.keeps_velocity ? c.momentum * b[i] : 0.0) +
             (way.ema ? 1 - c.momentum : 1.0) * (way.lr_in_velocity ? c.lr : 1.0) * d;
      if (way.rests_at_zero && c.momentum == 0) b[i] = before;
      if (way.decays_late) b[i] = c.momentum * (before + d);
      const double pulled = way.old_velocity ? before : b[i];
      if (way.velocity_only || way.ema)
        w[i] += (way.lr_in_velocity ? 1.0 : c.lr) * b[i];
      else
        w[i] += c.lr * d + (way.nesterov ? (way.lr_once ? 1.0 : c.lr) *
                                               (way.whole_look_ahead ? 1.0 : c.momentum) * pulled
                                         : 0.0);
    }
    all.push_back({w, b});
  }
  return all;
}

Call call_of(const Case& c) {
  Call call{.scenario = "outer", .inputs = std::vector<Parcel>(1), .name = c.name};
  Parcel& input = call.inputs[0];
  const auto floats = [](const Numbers& numbers) {
    return std::vector<float>(numbers.begin(), numbers.end());
  };
  const auto elements = static_cast<int64_t>(c.start.size());
  input.set("lr", c.lr);
  input.set("momentum", c.momentum);
  input.set("optimizers", c.optimizers);
  input.set("weights", Tensor::from(floats(c.start), {elements}));
  for (size_t k = 0; k < c.rounds.size(); ++k) {
    const Round& round = c.rounds[k];
    std::vector<float> values;
    for (const Numbers& weights : round.weights)
      values.insert(values.end(), weights.begin(), weights.end());
    input.set("samples" + std::to_string(k), round.samples);
    input.set("results" + std::to_string(k),
              Tensor::from(values, {static_cast<int64_t>(round.weights.size()), elements}));
  }
  return call;
}

/// The weights (or the velocity) after all rounds, one after the other.
Numbers all_rounds(const Case& c, const Way& way, bool weights) {
  Numbers numbers;
  for (const Outcome& outcome : outcomes(c, way)) {
    const Numbers& part = weights ? outcome.weights : outcome.velocity;
    numbers.insert(numbers.end(), part.begin(), part.end());
  }
  return numbers;
}

std::vector<Mistake> mistakes(const Case& c, bool weights) {
  const std::vector<std::pair<Way, const char*>> ways{
      {{.by_samples = false},
       "the plain mean of the results: a client must count by the samples that it has learnt from"},
      {{.divided = false}, "the shares do not add up to 1: divide by the samples of all results"},
      {{.nesterov = false}, "there is no momentum in the weights: d alone moves them"},
      {{.keeps_velocity = false}, "the velocity is forgotten between rounds"},
      {{.velocity_only = true},
       "w moves by b alone: that is momentum without Nesterov's look ahead, or b changes only "
       "after w"},
      {{.whole_shares = true}, "the shares are whole numbers, 0 or 1: an integer division?"},
      {{.lr_in_velocity = true}, "the learning rate is in the velocity already"},
      {{.lr_in_velocity = true, .lr_once = true}, "the learning rate is in the velocity already"},
      {{.lr_once = true}, "the learning rate does not act on the momentum's part"},
      {{.backwards = true}, "w moves away from the average: d has the wrong sign"},
      {{.adds_average = true}, "d is the average itself: the weights were not subtracted"},
      {{.ema = true}, "b is a moving average: the contract adds d in full"},
      {{.old_velocity = true}, "the velocity of the round before: b changes first"},
      {{.rests_at_zero = true},
       "without momentum the velocity stays as it was: it must become d, which counts once mu "
       "grows"},
      {{.decays_late = true},
       "b = mu (b + d): mu multiplies only the old b, and d is added in full"},
      {{.whole_look_ahead = true}, "w moves by d + b: mu is missing before b"},
      {{.counts_in_int = true},
       "the samples of all results do not fit into an int: add them up as int64_t"},
      {{.rolls_on = true},
       "a round without results moves something: nobody has answered, so nothing may change"},
      {{.rolls_on = true, .falls_to_zero = true},
       "a round without results moves something: nobody has answered, so nothing may change"}};
  std::vector<Mistake> all;
  // Once the weights are right, no mistake in the velocity that would make them wrong.
  const auto moves_weights = [&](const Way& way) {
    return !std::ranges::equal(all_rounds(c, way, true), all_rounds(c, {}, true),
                               [](double a, double b) { return std::abs(a - b) <= 1e-9; });
  };
  for (const auto& [way, message] : ways)
    if (weights || !moves_weights(way)) all.push_back({all_rounds(c, way, weights), message});
  Case without_lr = c;
  without_lr.lr = 1;
  all.push_back(
      {all_rounds(without_lr, {}, weights), "lr is missing: w moves by lr times (d + mu b)"});
  if (!weights)
    all.push_back({Numbers(all[0].values.size(), 0.0),
                   "the velocity stays 0: outer.velocity itself must change, not a copy"});
  return all;
}

void judge(const Case& c, const Parcel& result, int optimizer, bool weights) {
  Numbers got;
  for (size_t round = 0; round < c.rounds.size(); ++round) {
    const Numbers part = lab::grading::to_doubles(
        result.tensor(fmt::format("{}{}.{}", weights ? "weights" : "velocity", round, optimizer)));
    got.insert(got.end(), part.begin(), part.end());
  }
  const Numbers right = all_rounds(c, {}, weights);
  lab::grading::expect(
      got, {.what = weights ? "the weights" : "the velocity",
            .values = right,
            .tolerance = lab::grading::relative_tolerance(right, 2e-5, 2.0),
            .name =
                [&](size_t i) {
                  return fmt::format("round {}, element {}", i / c.start.size() + 1,
                                     i % c.start.size());
                },
            .mistakes = [&] { return mistakes(c, weights); },
            .if_not_finite = "not a number: without results or samples nothing changes"});
}

void judge_rates(const Case& c, const Parcel& result) {
  for (size_t round = 0; round < c.rounds.size(); ++round)
    for (int o = 0; o < c.optimizers; ++o)
      if (result.numbers(fmt::format("rates{}.{}", round, o)) != Numbers{0, 0})
        stop(
            fmt::format("round {} changes outer.lr or outer.momentum: a round may change only the "
                        "weights and the velocity",
                        round + 1));
}

void expect_outer(const std::vector<Case>& cases) {
  std::vector<Call> calls;
  for (const Case& c : cases) calls.push_back(call_of(c));
  judge_calls(calls, {.network = lab::grading::Network::kNone},
              [&](size_t k, const std::vector<Parcel>& ranks) {
                const Case& c = cases[k];
                if (ranks[0].number("changed") != 0)
                  stop("a client's result has changed: add up in a tensor of your own");
                if (ranks[0].number("replaced") != 0)
                  stop(
                      "outer.velocity is another tensor after the round: change it in place, since "
                      "others may hold it");
                judge_rates(c, ranks[0]);
                for (int o = 0; o < c.optimizers; ++o) {
                  judge(c, ranks[0], o, true);
                  judge(c, ranks[0], o, false);
                }
              });
}

TEST(Task5b, WithoutMomentumItIsTheAverage) {
  expect_outer(
      {{.name = "lab 03's example", .start = {0, 0}, .rounds = {{{100, 300}, {{1, 2}, {5, 10}}}}},
       {.name = "two rounds, other weights to begin with",
        .start = {3, -1},
        .rounds = {{{1, 1, 2}, {{1, 2}, {5, 1}, {0, -4}}}, {{5}, {{2, 2}}}}}});
}

TEST(Task5b, Momentum) {
  const std::vector<Round> rounds{{{100, 300}, {{1, 2}, {5, 10}}},
                                  {{1, 1}, {{4, 7}, {6, 9}}},
                                  {{2, 5, 1}, {{5, 5}, {7, 6}, {8, 1}}}};
  expect_outer(
      {{.name = "momentum 0.9", .lr = 0.7, .momentum = 0.9, .start = {0, 1}, .rounds = rounds},
       {.name = "lr only", .lr = 0.5, .start = {2, 1}, .rounds = rounds},
       {.name = "two optimizers in turn",
        .lr = 0.7,
        .momentum = 0.5,
        .start = {0, 1},
        .rounds = rounds,
        .optimizers = 2}});
}

TEST(Task5b, WhoDoesNotAnswerDoesNotCount) {
  expect_outer({{.name = "a round without results",
                 .lr = 0.7,
                 .momentum = 0.9,
                 .start = {2, 1},
                 .rounds = {{{4}, {{1, 2}}}, {{}, {}}, {{2}, {{1, 3}}}}},
                {.name = "results without samples",
                 .momentum = 0.5,
                 .start = {2, 1},
                 .rounds = {{{0, 0}, {{1, 2}, {4, 4}}}, {{0, 6}, {{9, 9}, {1, 3}}}}}});
}

Case drawn_case(std::mt19937_64& random, size_t elements, int rounds) {
  const auto number = [&] { return static_cast<double>(random() % 2001) / 1000 - 1; };
  constexpr double kRates[] = {0, 0.1, 0.4, 0.7, 1, 1.5};
  constexpr double kMomenta[] = {0, 0.3, 0.5, 0.9, 0.95, 0.99};
  Case c{.name = {}, .lr = kRates[random() % 6], .momentum = kMomenta[random() % 6]};
  c.start.resize(elements);
  for (double& value : c.start) value = number();
  for (int r = 0; r < rounds; ++r) {
    Round round;
    for (uint64_t left = random() % 10 == 0 ? 40 : random() % 5; left > 0; --left) {
      constexpr double kSamples[] = {1, 20, 2000, 3e9};  // clients differ
      round.samples.push_back(std::floor(kSamples[random() % (r % 2 == 0 ? 3 : 4)] *
                                         static_cast<double>(random() % 100) / 50));
      round.weights.emplace_back(c.start.size());
      for (double& value : round.weights.back()) value = number();
    }
    c.rounds.push_back(round);
  }
  return c;
}

TEST(Task5b, Drawn) {
  std::mt19937_64 random(lab::grading::scenario_seed() + 500);
  constexpr size_t kSizes[] = {1, 2, 3, 5, 8, 64, 65, 1031};
  std::vector<Case> cases;
  for (int k = 0; k < 40; ++k) {
    cases.push_back(drawn_case(random, kSizes[k % 8], 4));
    cases.back().name = fmt::format("drawn, number {}", k);
  }
  expect_outer(cases);
}

TEST(Task5b, ManyRounds) {
  std::mt19937_64 random(lab::grading::scenario_seed() + 501);
  Case c = drawn_case(random, 2, 60);
  c.name = "60 rounds";
  c.lr = 0.1;
  c.momentum = 0.99;
  expect_outer({c});
}

TEST(Task5b, VeryUnequalClients) {
  expect_outer({{.name = "1 and 5,000 samples",
                 .start = {0},
                 .rounds = {{{1, 5000}, {{40}, {1}}}, {{5000, 2}, {{1}, {-50}}}}}});
}

}  // namespace
}  // namespace lab11::task5b
