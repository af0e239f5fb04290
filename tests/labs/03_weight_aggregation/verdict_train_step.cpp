// Verdict on task 3: where each replica goes, step by step, judged on the displacement of its
// weights from the start, and what was sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "common/tensor/error.h"
#include "tests/labs/03_weight_aggregation/training_case.h"

namespace lab03 {
namespace {

using lab::grading::Expected;
using lab::grading::Mistake;
using lab::grading::Parcel;
using lab::grading::stop;

/// Relative to the sum of the absolute terms of a weight: itself, and the ranks' contributions.
constexpr double kTolerance = 1e-6;
/// Of the largest displacement, from the second step on: rounding errors of a step pass through the
/// gradients of the next.
constexpr double kGrowth = 1e-4;

/// All weights after all steps on all ranks, less those at the start, one behind the other.
struct Path {
  Numbers displacement;
  Numbers tolerance;
};

class Model {
 public:
  explicit Model(const Parcel& parcel)
      : start(lab::grading::to_doubles(parcel.tensor("start"))), begins_(parcel.numbers("begins")) {
    std::istringstream lines(parcel.text("names"));
    for (std::string line; std::getline(lines, line);) names_.push_back(line);
  }

  /// Of an element of a path.
  std::string name(size_t i, size_t ranks) const {
    const size_t weight = i % start.size();
    const size_t rank = i / start.size() % ranks;
    const size_t step = i / start.size() / ranks + 1;
    const auto next = std::upper_bound(begins_.begin(), begins_.end(), static_cast<double>(weight));
    const auto parameter = static_cast<size_t>(next - begins_.begin()) - 1;
    return fmt::format("after step {}, rank {}, {}, element {}", step, rank, names_[parameter],
                       weight - static_cast<size_t>(begins_[parameter]));
  }

  Numbers start;

 private:
  Numbers begins_;
  std::vector<std::string> names_;
};

using WeightsOf = std::function<const lab::Tensor&(int step, size_t rank)>;

Path path(const Case& c, const Numbers& start, const WeightsOf& weights) {
  Path path;
  for (int step = 1; step <= c.steps; ++step)
    for (size_t r = 0; r < c.ranks(); ++r) {
      const Numbers now = lab::grading::to_doubles(weights(step, r));
      for (size_t i = 0; i < start.size(); ++i) {
        path.displacement.push_back(now[i] - start[i]);
        path.tolerance.push_back(kTolerance * (std::abs(now[i]) + std::abs(now[i] - start[i])));
      }
    }
  if (c.steps > 1) {
    const double growth = kGrowth * lab::grading::largest_magnitude(path.displacement);
    for (double& tolerance : path.tolerance) tolerance += growth;
  }
  return path;
}

/// The path of a plan, right or wrong.
Path path(const Case& c, const Parcel& replicas) {
  return path(c, lab::grading::to_doubles(replicas.tensor("start")),
              [&](int step, size_t r) -> const lab::Tensor& {
                return replicas.tensor(fmt::format("weights.{}.{}", step, r));
              });
}

/// What the ranks of a job returned.
Path path(const Case& c, const Numbers& start, const std::vector<Parcel>& ranks) {
  return path(c, start, [&](int step, size_t r) -> const lab::Tensor& {
    return ranks[r].tensor(fmt::format("weights.{}", step));
  });
}

/// Steps after which weights are averaged: `first`, `first` + `every`, ...
Numbers averages(const Case& c, int first, int every) {
  Numbers steps;
  for (int step = first; step <= c.steps; step += every)
    if (step >= 1) steps.push_back(step);
  return steps;
}

Plan right_plan(const Case& c) {
  return {.averages = averages(c, c.every, c.every), .shares = c.shares};
}

/// Shares that have been multiplied by `factor`.
Numbers scaled(Numbers shares, double factor) {
  for (double& share : shares) share *= factor;
  return shares;
}

struct WrongPlan {
  Plan plan;
  std::string message;
};

std::vector<WrongPlan> wrong_plans(const Case& c) {
  const Plan right = right_plan(c);
  const auto ranks = static_cast<double>(c.ranks());
  const auto with = [&](const auto& change) {
    Plan plan = right;
    change(plan);
    return plan;
  };
  const std::string round = fmt::format("; every = {}", c.every);
  return {
      {with([](Plan& p) { p.averages = {}; }),
       "the weights are never averaged: each rank goes its own way" + round},
      {with([&](Plan& p) { p.averages = averages(c, 1, 1); }),
       "the weights are averaged after every step, though an average is due only after steps k, "
       "2k, "
       "..." +
           round},
      {with([](Plan& p) { p.average_first = true; }),
       "averaged too early: the weights are averaged before the local step; the average belongs "
       "behind it, so that it contains this step's update" +
           round},
      {with([&](Plan& p) { p.averages = averages(c, 1, c.every); }),
       "averaged after steps 1, k+1, ...: step is counted from 1, hand it on as it is" + round},
      {with([&](Plan& p) { p.averages = averages(c, c.every - 1, c.every); }),
       "averaged one step too early: step is counted from 1, hand it on as it is" + round},
      {with([&](Plan& p) { p.averages = averages(c, c.every + 1, c.every); }),
       "averaged one step too late" + round},
      {with([](Plan& p) {
         p.averages = {};
         p.gradients = true;
       }),
       "the gradients are averaged, in every step, as in lab 02; here each rank makes its own "
       "update, and the weights are averaged"},
      {with([](Plan& p) { p.gradients = true; }),
       "the gradients are averaged as in lab 02, and the weights on top of it; here each rank "
       "makes "
       "its own update from its own gradients"},
      {with([&](Plan& p) { p.gradient_scale = 1 / ranks; }),
       "the gradients are divided by the number of ranks: averaged twice. A local step is lab "
       "01's, "
       "over this rank's own targets; averaging the weights is all that follows"},
      {with([&](Plan& p) { p.shares = Numbers(c.ranks(), 1 / ranks); }),
       "the shares are ignored: each rank's weights count the same; hand on aggregation.share"},
      {with([&](Plan& p) { p.shares = Numbers(c.ranks(), 1); }),
       "the weights are added up, not averaged: hand on aggregation.share"},
      {with([&](Plan& p) { p.shares = scaled(c.shares, 1 / ranks); }),
       "averaged twice: the share is divided by the number of ranks as well"},
      {with([](Plan& p) { p.own_means = true; }),
       "a mean of the means of a rank's own microbatches: all its targets count the same, in "
       "whichever microbatch they are"},
  };
}

std::vector<Mistake> mistakes(const Case& c) {
  std::vector<Mistake> all;
  for (const WrongPlan& wrong : wrong_plans(c))
    all.push_back(
        {path(c, lab::grading::reference("replicas", replicas_input(c, wrong.plan))).displacement,
         wrong.message});
  return all;
}

void expect_one_update_per_step(const Case& c, const std::vector<Parcel>& results) {
  for (size_t r = 0; r < c.ranks(); ++r)
    for (int step = 1; step <= c.steps; ++step) {
      const auto updates = static_cast<int>(results[r].number(fmt::format("updates.{}", step)));
      if (updates == step) continue;
      stop(
          fmt::format("rank {} has made {} updates after step {}: every step is one local step "
                      "with one update, on every rank",
                      r, updates, step));
    }
}

/// All operations that carry weights: averages may be made in several ways.
uint64_t bytes_sent(const Parcel& result) {
  uint64_t bytes = 0;
  for (const lab::OpKind kind :
       {lab::OpKind::kAllReduce, lab::OpKind::kReduce, lab::OpKind::kBroadcast,
        lab::OpKind::kAllGather, lab::OpKind::kReduceScatter, lab::OpKind::kSend})
    bytes += lab::grading::traffic_of(result, kind).bytes;
  return bytes;
}

/// Between averages a rank waits for nobody: not even in a barrier, which has no bytes.
void expect_silence_between_averages(const Case& c, const std::vector<Parcel>& results) {
  for (size_t r = 0; r < c.ranks(); ++r)
    for (int step = 1; step <= c.steps; ++step) {
      const auto operations = results[r].number(fmt::format("operations.{}", step));
      if (step % c.every == 0 || operations == 0) continue;
      stop(
          fmt::format("rank {} takes part in {} messages or collectives in step {}, with every = "
                      "{}: no average is due, so it should be in none, not even a barrier. Whoever "
                      "meets the others in every step is as slow as the slowest in every step",
                      r, operations, step, c.every));
    }
}

void expect_traffic(const Case& c, size_t weights, const std::vector<Parcel>& results) {
  const auto once = static_cast<double>(weights * sizeof(float));
  for (size_t r = 0; r < c.ranks(); ++r) {
    const auto sent = static_cast<double>(bytes_sent(results[r]));
    // Twice: reduce and broadcast are as good as all_reduce. And a few single numbers per step.
    const double most = 2 * once * c.rounds() + 64 * c.steps;
    if (sent <= most) continue;
    std::string message = fmt::format(
        "too much traffic: rank {} put {:.0f} bytes into messages in {} steps with every = {}; {} "
        "averages of {:.0f} bytes of weights are {:.0f}",
        r, sent, c.steps, c.every, c.rounds(), once, once * c.rounds());
    if (sent >= once * c.steps)
      message += ": are weights or gradients sent in every step? Nothing travels between averages";
    stop(message);
  }
}

void expect_equal_replicas(const Case& c, const std::vector<Parcel>& results) {
  for (int step = c.every; step <= c.steps; step += c.every) {
    const std::string entry = fmt::format("weights.{}", step);
    const Numbers first = lab::grading::to_doubles(results[0].tensor(entry));
    for (size_t r = 1; r < c.ranks(); ++r)
      if (lab::grading::to_doubles(results[r].tensor(entry)) != first)
        stop(
            fmt::format("after the average of step {} rank {} and rank 0 differ in their last "
                        "bits: all ranks must take the result of the same sum",
                        step, r));
  }
}

void expect_losses(const Case& c, const Parcel& right, const std::vector<Parcel>& results) {
  for (int step = 1; step <= c.steps; ++step) {
    Numbers losses;
    double mean = 0;
    double product = 0;
    for (size_t r = 0; r < c.ranks(); ++r) {
      losses.push_back(right.number(fmt::format("loss.{}.{}", step, r)));
      mean += losses[r] / static_cast<double>(c.ranks());
      product += losses[r] * c.shares[r];
    }
    for (size_t r = 0; r < c.ranks(); ++r)
      lab::grading::expect(
          results[r].number(fmt::format("loss.{}", step)),
          {.what = fmt::format("the loss that rank {} returns in step {}", r, step),
           .values = {losses[r]},
           .tolerance = {kGrowth * losses[r]},
           .name = {},
           .mistakes = {{{mean},
                         "the mean loss of all ranks: return this rank's own; its average "
                         "would cost a message in every step"},
                        {{product}, "the weighted loss of all ranks: return this rank's own"},
                        {{0}, "the returned loss is 0: return what the local step returned"}},
           .if_not_finite = ""});
  }
}

std::vector<Parcel> run_student(const Case& c) {
  return lab::grading::student_group("train_step", rank_inputs(c),
                                     {.functions = lab::grading::Functions::kGiven});
}

void expect_training(const Case& c) {
  const std::vector<Parcel> results = run_student(c);
  expect_one_update_per_step(c, results);
  const Parcel right = lab::grading::reference("replicas", replicas_input(c, right_plan(c)));
  const Model model(right);
  const Path wanted = path(c, right);
  const Path got = path(c, model.start, results);
  Expected expected{.what = "the change of the weights",
                    .values = wanted.displacement,
                    .tolerance = wanted.tolerance,
                    .name = [&](size_t i) { return model.name(i, c.ranks()); },
                    .mistakes = {},
                    .if_not_finite = ""};
  if (!lab::grading::difference(got.displacement, expected).empty()) {
    expected.mistakes = mistakes(c);  // made only where one has happened: each takes a run
    lab::grading::expect(got.displacement, expected);
  }
  expect_equal_replicas(c, results);
  expect_losses(c, right, results);
  expect_traffic(c, model.start.size(), results);
  expect_silence_between_averages(c, results);
}

TEST(Task3, OneStepIsAveraged) { expect_training({}); }

TEST(Task3, ThreeLocalStepsThenTheAverage) { expect_training({.steps = 7, .every = 3}); }

TEST(Task3, NoAverageBeforeStepK) { expect_training({.steps = 3, .every = 4}); }

TEST(Task3, SharesCount) {
  expect_training({.shares = {0.5, 0.125, 0.375}, .steps = 4, .every = 2});
}

TEST(Task3, AdamKeepsItsOwnMoments) {
  expect_training({.steps = 5, .every = 2, .optimizer = "adam", .learning_rate = 0.02});
}

TEST(Task3, ClipsItsOwnGradientsOverItsOwnMicrobatches) {
  expect_training({.shares = {0.25, 0.75},
                   .steps = 2,
                   .every = 2,
                   .max_norm = 0.5,
                   .microbatches = 2,
                   .lengths = {8, 5}});
}

TEST(Task3, EveryTargetOfARankCountsTheSame) {
  expect_training({.steps = 2, .every = 2, .microbatches = 3, .lengths = {8, 8, 5}});
}

TEST(Task3, OneRankAloneIsLab01) { expect_training({.shares = {1.0}, .steps = 3, .every = 2}); }

/// The path of lab 02's train_step on the same microbatches.
Path gradient_aggregation(const Case& c, const Numbers& start) {
  return path(c, start, lab::grading::reference_group("gradient_aggregation", rank_inputs(c)));
}

/// Plain SGD is linear in the gradients: with k = 1, averaging weights is averaging gradients.
/// Shares by targets make it so also where ranks have unequally many.
TEST(Task3, WithSgdAndKOneItIsGradientAggregation) {
  // Rows of 8, 8 and 5 tokens have 7, 7 and 4 targets.
  const Case c{.shares = {7.0 / 18, 7.0 / 18, 4.0 / 18}, .steps = 3, .lengths = {8, 8, 5}};
  const std::vector<Parcel> results = run_student(c);
  const Parcel right = lab::grading::reference("replicas", replicas_input(c, right_plan(c)));
  const Model model(right);
  const Path wanted = gradient_aggregation(c, model.start);
  const Path got = path(c, model.start, results);
  Expected expected{.what = "the change of the weights, against lab 02's",
                    .values = wanted.displacement,
                    .tolerance = wanted.tolerance,
                    .name = [&](size_t i) { return model.name(i, c.ranks()); },
                    .mistakes = {},
                    .if_not_finite = ""};
  if (lab::grading::difference(got.displacement, expected).empty()) return;
  expected.mistakes = mistakes(c);
  lab::grading::expect(got.displacement, expected);
}

/// Adam is not linear: the same comparison must find a difference, far above rounding.
TEST(Task3, WithAdamItIsNot) {
  const Case c{.steps = 3, .optimizer = "adam", .learning_rate = 0.02};
  const std::vector<Parcel> results = run_student(c);
  const Parcel right = lab::grading::reference("replicas", replicas_input(c, right_plan(c)));
  const Numbers start = lab::grading::to_doubles(right.tensor("start"));
  const Path wanted = path(c, right);
  const Path other = gradient_aggregation(c, start);
  const Path got = path(c, start, results);
  const auto apart = [](const Path& a, const Path& b) {
    double most = 0;
    for (size_t i = 0; i < a.displacement.size(); ++i)
      most = std::max(most, std::abs(a.displacement[i] - b.displacement[i]));
    return most;
  };
  // Otherwise this test could not tell one from the other.
  lab::require(apart(wanted, other) > 1e-3, "both ways to aggregate with Adam differ by {} only",
               apart(wanted, other));
  if (apart(got, other) < 0.1 * apart(wanted, other))
    stop(
        "with Adam this is lab 02's step: the gradients are averaged before the update. Here each "
        "rank makes its own update, with moments of its own gradients");
}

}  // namespace
}  // namespace lab03
