// Verdict on task 3: what train_step hands to the optimizer, judged against the gradients of each
// microbatch. A wrong divisor is plain to see there, and under SGD; Adam would hide it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "tests/labs/01_single_gpu/random_input.h"

namespace lab01 {
namespace {

using lab::TokenBatch;
using lab::grading::Expected;
using lab::grading::Mistake;
using lab::grading::Parcel;
using Numbers = std::vector<double>;

constexpr int64_t kVocab = 24;
constexpr double kLearningRate = 0.05;

/// Relative to the sum of the absolute terms, over the microbatches, of each element; and to the
/// largest gradient of the model, since an element may be a difference of large numbers inside a
/// microbatch, where the place of a factor moves the rounding.
constexpr double kTolerance = 1e-6;

/// Of what comes after the first update: differences of rounding grow from step to step.
constexpr double kLaterTolerance = 1e-4;

struct Case {
  std::vector<TokenBatch> microbatches;
  double max_norm = 0;
  float leftover = 0;  // in every gradient before the first step
  std::string optimizer = "sgd";
  int steps = 1;
};

TokenBatch tokens(const std::vector<int64_t>& lengths, uint64_t seed) {
  return random_tokens(lengths, 8, kVocab, seed);
}

Case equal_microbatches() {
  return {.microbatches = {tokens({8, 8}, 41), tokens({8, 8}, 42), tokens({8, 8}, 43)}};
}

Case unequal_microbatches() {
  return {.microbatches = {tokens({8, 8, 8}, 44), tokens({3}, 45), tokens({5, 6}, 46)}};
}

Parcel input_of(const Case& c) {
  Parcel input;
  input.set("microbatches", static_cast<double>(c.microbatches.size()));
  for (size_t k = 0; k < c.microbatches.size(); ++k)
    input.set("microbatch" + std::to_string(k), c.microbatches[k]);
  input.set("max_norm", c.max_norm);
  input.set("leftover", c.leftover);
  input.set_text("optimizer", c.optimizer);
  input.set("steps", c.steps);
  input.set("learning_rate", kLearningRate);
  return input;
}

double norm(const Numbers& values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares);
}

void clip(Numbers& gradients, double max_norm) {
  const double factor = max_norm / norm(gradients);
  if (max_norm > 0 && factor < 1)
    for (double& g : gradients) g *= factor;
}

/// The parts from which right and wrong steps are made: each microbatch's loss and gradients,
/// summed over its targets, at the initial weights.
struct Parts {
  explicit Parts(const Case& c) {
    const Parcel parcel = lab::grading::reference("microbatch_gradients", input_of(c));
    losses = parcel.numbers("losses");
    for (size_t k = 0; k < c.microbatches.size(); ++k) {
      gradients.push_back(lab::grading::to_doubles(parcel.tensor("gradients" + std::to_string(k))));
      targets.push_back(static_cast<double>(c.microbatches[k].target_count()));
      total += targets.back();
    }
    weights = lab::grading::to_doubles(parcel.tensor("weights"));
    begins = parcel.numbers("begins");
    std::istringstream lines(parcel.text("names"));
    for (std::string line; std::getline(lines, line);) names.push_back(line);
  }

  size_t count() const { return targets.size(); }

  /// Sum over the microbatches of factor(k) * values[k].
  template <typename Factor>
  Numbers combine(const std::vector<Numbers>& values, const Factor& factor) const {
    Numbers sum(values[0].size(), 0.0);
    for (size_t k = 0; k < count(); ++k)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor(k) * values[k][i];
    return sum;
  }

  /// "model.norm.weight, element 3".
  std::string name(size_t i) const {
    const auto next = std::upper_bound(begins.begin(), begins.end(), static_cast<double>(i));
    const auto parameter = static_cast<size_t>(next - begins.begin()) - 1;
    return names[parameter] + ", element " +
           std::to_string(i - static_cast<size_t>(begins[parameter]));
  }

  Numbers losses;
  std::vector<Numbers> gradients;
  Numbers targets;
  double total = 0;
  Numbers weights;
  Numbers begins;
  std::vector<std::string> names;
};

/// A way to weigh the microbatches.
struct Weighing {
  std::function<double(size_t k)> factor;
  std::string message;
};

std::vector<Weighing> wrong_weighings(const Parts& p) {
  const auto m = static_cast<double>(p.count());
  const size_t last = p.count() - 1;
  const auto is_last = [last](size_t k) { return k == last ? 1.0 : 0.0; };
  const auto is_first = [](size_t k) { return k == 0 ? 1.0 : 0.0; };
  return {
      {[&p](size_t k) { return 1 / p.targets[k]; },
       "the microbatches' means are added up; were they averaged? Divide each microbatch's sum by "
       "the targets of the whole step (section 2.2)"},
      {[&p, m](size_t k) { return 1 / (m * p.targets[k]); },
       "a mean of means: a target in a microbatch with few targets counts more than one in a large "
       "microbatch; divide by the targets of the whole step (section 2.2)"},
      {[](size_t) { return 1.0; },
       "a sum over all targets, not a mean: pass the number of targets of the whole step to loss"},
      {[&p, m](size_t) { return 1 / (m * p.total); },
       "divided by the number of microbatches on top of the number of targets: averaged twice"},
      {[&p, is_last](size_t k) { return is_last(k) / p.total; },
       "only the last microbatch arrived: is something zeroed or overwritten inside the loop?"},
      {[&p, is_last](size_t k) { return is_last(k) / p.targets[k]; },
       "only the last microbatch arrived, as if it were the whole step: is something zeroed or "
       "overwritten inside the loop?"},
      {[&p, is_first](size_t k) { return is_first(k) / p.total; },
       "only the first microbatch arrived: does the loop run over all microbatches?"},
      {[&p, is_first](size_t k) { return is_first(k) / p.targets[k]; },
       "only the first microbatch arrived, as if it were the whole step: does the loop run over "
       "all microbatches?"},
      {[&p, m](size_t k) { return p.targets[0] > 0 ? 1 / (m * p.targets[0]) + 0.0 * k : 0.0; },
       "every microbatch is counted as if it had as many targets as the first: count the targets "
       "of all (section 2.2)"},
  };
}

/// Clipped after every microbatch, as the gradients add up.
Numbers clipped_in_the_loop(const Parts& p, double max_norm) {
  Numbers sum(p.gradients[0].size(), 0.0);
  for (const Numbers& gradients : p.gradients) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[i] / p.total;
    clip(sum, max_norm);
  }
  return sum;
}

std::vector<Mistake> gradient_mistakes(const Parts& p, const Case& c, const Numbers& unclipped) {
  std::vector<Mistake> mistakes;
  for (const Weighing& weighing : wrong_weighings(p)) {
    Numbers gradients = p.combine(p.gradients, weighing.factor);
    clip(gradients, c.max_norm);
    mistakes.push_back({gradients, "the gradients: " + weighing.message});
  }
  if (c.leftover != 0) {
    Numbers with_leftover = unclipped;
    for (double& g : with_leftover) g += c.leftover;
    mistakes.push_back({with_leftover,
                        "the gradients from before the step are still in them: call "
                        "model.zero_gradients() first"});
  }
  if (c.max_norm > 0) {
    mistakes.push_back({unclipped,
                        "the gradients are not clipped when the optimizer gets them: call "
                        "lab::clip_gradients after the last backward and before the update"});
    mistakes.push_back({clipped_in_the_loop(p, c.max_norm),
                        "the gradients are clipped after every microbatch: clip once, when all "
                        "have been added up"});
  }
  return mistakes;
}

std::string totals_in_words(const Parcel& result, const Parts& p) {
  std::ostringstream text;
  const Numbers totals = result.numbers("totals0");
  if (totals.empty()) return "\nthe loss that is handed in was never called";
  text << "\nloss was called with total_targets =";
  for (double total : totals) text << ' ' << total;
  text << "; the microbatches have";
  for (double targets : p.targets) text << ' ' << targets;
  text << " targets, together " << p.total;
  return text.str();
}

/// Ends the test if in some step the loss that was handed in was not called once per microbatch.
void expect_loss_called(const Parcel& result, const Case& c) {
  for (int step = 0; step < c.steps; ++step) {
    const size_t calls = result.numbers("totals" + std::to_string(step)).size();
    if (calls == c.microbatches.size()) continue;
    lab::grading::stop(
        "call the function that was handed in, `loss`, once for each microbatch, and none of your "
        "own in its place\nstep " +
        std::to_string(step + 1) + ": called " + std::to_string(calls) + " times, there are " +
        std::to_string(c.microbatches.size()) + " microbatches");
  }
}

/// Ends the test if the optimizer was not called exactly once per step, with the given rate.
void expect_one_update(const Parcel& result, const Case& c) {
  for (int step = 0; step < c.steps; ++step) {
    const double updates = result.number("updates" + std::to_string(step));
    if (updates == 0)
      lab::grading::stop("the weights are not updated: optimizer.step was never called");
    if (updates > 1)
      lab::grading::stop(
          "one step of training is one update: optimizer.step was called " +
          std::to_string(static_cast<int>(updates)) +
          " times; call it once, after the gradients of all microbatches have been added up");
    lab::grading::expect(result.number("rate" + std::to_string(step)),
                         {.what = "the learning rate that optimizer.step was given",
                          .values = {kLearningRate},
                          .tolerance = {1e-8},
                          .name = {},
                          .mistakes = {},
                          .if_not_finite = ""});
  }
}

void expect_gradients(const Parcel& result, const Parts& p, const Case& c) {
  const Numbers unclipped = p.combine(p.gradients, [&](size_t) { return 1 / p.total; });
  Expected expected{.what = "the gradients",
                    .values = unclipped,
                    .tolerance = {},
                    .name = [&p](size_t i) { return p.name(i); },
                    .mistakes = gradient_mistakes(p, c, unclipped),
                    .if_not_finite = ""};
  clip(expected.values, c.max_norm);
  expected.tolerance.assign(unclipped.size(),
                            kTolerance * lab::grading::largest_magnitude(expected.values));
  for (const Numbers& gradients : p.gradients)
    for (size_t i = 0; i < gradients.size(); ++i)
      expected.tolerance[i] += kTolerance * std::abs(gradients[i]) / p.total;
  const std::string message =
      lab::grading::difference(lab::grading::to_doubles(result.tensor("gradients0")), expected);
  if (!message.empty()) lab::grading::stop(message + totals_in_words(result, p));
}

void expect_loss(const Parcel& result, const Parts& p) {
  const auto combined = [&](const auto& factor) {
    double sum = 0;
    for (size_t k = 0; k < p.count(); ++k) sum += factor(k) * p.losses[k];
    return sum;
  };
  const double right = combined([&](size_t) { return 1 / p.total; });
  Expected expected{.what = "the returned loss",
                    .values = {right},
                    .tolerance = {kTolerance * right},
                    .name = {},
                    .mistakes = {},
                    .if_not_finite = ""};
  for (const Weighing& weighing : wrong_weighings(p))
    expected.mistakes.push_back(
        {{combined(weighing.factor)}, "the returned loss: " + weighing.message});
  const std::string message = lab::grading::difference({result.number("loss0")}, expected);
  if (!message.empty()) lab::grading::stop(message + totals_in_words(result, p));
}

/// Runs the case and judges its updates, the gradients of the first step, and calls of the loss.
Parcel expect_first_step(const Case& c, const Parts& p) {
  Parcel result = lab::grading::student("train_step", input_of(c));
  expect_one_update(result, c);
  if (result.numbers("totals0").empty()) expect_loss_called(result, c);
  expect_gradients(result, p, c);
  expect_loss_called(result, c);
  return result;
}

Parcel expect_first_step(const Case& c) { return expect_first_step(c, Parts(c)); }

/// The losses of several steps against the reference's.
void expect_losses(const Parcel& result, const Parcel& right, const Case& c) {
  Numbers got;
  Numbers wanted;
  for (int step = 0; step < c.steps; ++step) {
    got.push_back(result.number("loss" + std::to_string(step)));
    wanted.push_back(right.number("loss" + std::to_string(step)));
  }
  Numbers sums = wanted;
  std::partial_sum(wanted.begin(), wanted.end(), sums.begin());
  lab::grading::expect(
      got,
      {.what = "the returned losses",
       .values = wanted,
       .tolerance = lab::grading::relative_tolerance(wanted, kLaterTolerance, 0),
       .name = [](size_t step) { return "step " + std::to_string(step + 1); },
       .mistakes =
           {{Numbers(wanted.size(), wanted[0]),
             "every step returns the loss of the first one: was it kept in a static variable?"},
            {sums,
             "the returned loss goes on from that of the step before: each step begins with 0; a "
             "static variable keeps its value from call to call"}},
       .if_not_finite = ""});
}

/// Several steps against the reference's: the displacement of the weights from the start, and the
/// losses.
void expect_weights(const Case& c) {
  const Parts p(c);
  const Parcel result = expect_first_step(c, p);
  const Parcel right = lab::grading::reference("train_step", input_of(c));
  for (int step = 0; step < c.steps; ++step) {
    const std::string entry = "weights" + std::to_string(step);
    Numbers got = lab::grading::to_doubles(result.tensor(entry));
    Numbers wanted = lab::grading::to_doubles(right.tensor(entry));
    Numbers rounding = got;
    for (size_t i = 0; i < got.size(); ++i) {
      rounding[i] = 2e-7 * std::abs(got[i]) * (step + 1);  // of the weight itself, per update
      got[i] -= p.weights[i];
      wanted[i] -= p.weights[i];
    }
    const double allowed = kLaterTolerance * lab::grading::largest_magnitude(wanted);
    for (double& r : rounding) r += allowed;
    lab::grading::expect(
        got, {.what = "the change of the weights after step " + std::to_string(step + 1),
              .values = wanted,
              .tolerance = rounding,
              .name = [&p](size_t i) { return p.name(i); },
              .mistakes = {},
              .if_not_finite = ""});
  }
  expect_losses(result, right, c);
}

TEST(Task3, OneMicrobatch) {
  const Case c{.microbatches = {tokens({8, 8, 5}, 40)}};
  const Parts p(c);
  expect_loss(expect_first_step(c, p), p);
}

TEST(Task3, EqualMicrobatchesAreAveraged) {
  const Case c = equal_microbatches();
  const Parts p(c);
  expect_loss(expect_first_step(c, p), p);
}

TEST(Task3, EveryTargetCountsTheSame) {
  const Case c = unequal_microbatches();
  const Parts p(c);
  expect_loss(expect_first_step(c, p), p);
}

TEST(Task3, ReturnsTheMeanLoss) {
  const Case c = unequal_microbatches();
  expect_loss(lab::grading::student("train_step", input_of(c)), Parts(c));
}

TEST(Task3, LeftoverGradientsDoNotMatter) {
  Case c = unequal_microbatches();
  c.leftover = 0.25F;
  expect_first_step(c);
}

TEST(Task3, ClipsTheAccumulatedGradientOnce) {
  Case c = unequal_microbatches();
  const Parts p(c);
  c.max_norm = 0.5 * norm(p.combine(p.gradients, [&](size_t) { return 1 / p.total; }));
  expect_first_step(c, p);
}

TEST(Task3, ShortGradientsAreNotClipped) {
  Case c = unequal_microbatches();
  const Parts p(c);
  c.max_norm = 2 * norm(p.combine(p.gradients, [&](size_t) { return 1 / p.total; }));
  expect_first_step(c, p);
}

TEST(Task3, SeveralStepsWithSgd) {
  Case c = equal_microbatches();
  c.steps = 3;
  expect_weights(c);
}

TEST(Task3, SeveralStepsWithAdam) {
  Case c = unequal_microbatches();
  c.optimizer = "adam";
  c.steps = 3;
  expect_weights(c);
}

}  // namespace
}  // namespace lab01
