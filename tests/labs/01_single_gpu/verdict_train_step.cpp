// Verdict on task 3: what train_step hands to the optimizer, judged against the gradients of each
// microbatch. A wrong divisor is plain to see there, and under SGD; Adam would hide it.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "tests/labs/01_single_gpu/verdict_step_parts.h"

namespace lab01 {
namespace {

using lab::grading::Expected;
using lab::grading::Parcel;

/// Relative to the sum of the absolute terms, over the microbatches, of each element; and to the
/// largest gradient of the model, since an element may be a difference of large numbers inside a
/// microbatch, where the place of a factor moves the rounding.
constexpr double kTolerance = 1e-6;

/// Of what comes after the first update: differences of rounding grow from step to step.
constexpr double kLaterTolerance = 1e-4;

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
