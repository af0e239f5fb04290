// Verdict on task 6: one optimizer step of all pipelines together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/labs/06_hybrid_2x3/verdict_case.h"
#include "tests/labs/pipeline/same_bits.h"

namespace lab06 {
namespace {

using lab::grading::Expected;
using lab::grading::Functions;
using lab::grading::GroupOptions;
using lab::grading::Parcel;

constexpr double kMostClippingBytes = 64;  // of a rank, per step

std::string entry(const char* name, int step) { return fmt::format("{}.{}", name, step); }

double norm(const Numbers& values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares);
}

/// Scaled down as if `values` had the norm `length`.
Numbers clipped(Numbers values, double max_norm, double length) {
  if (max_norm > 0 && length > max_norm)
    for (double& value : values) value *= max_norm / length;
  return values;
}

void expect_course(const std::vector<Parcel>& results, const StepCase& c) {
  for (size_t rank = 0; rank < results.size(); ++rank)
    for (int step = 0; step < c.steps; ++step) {
      const std::string events = results[rank].text(entry("events", step));
      const std::string who = c.grid.name(rank);
      if (events.find("update") == std::string::npos)
        lab::grading::stop(
            fmt::format("{}: the weights are not updated: optimizer.step was never called. Every "
                        "rank updates its own",
                        who));
      if (events.find("gradients") == std::string::npos)
        lab::grading::stop(fmt::format("{}: compute_gradients was never called", who));
      if (events != "gradients update")
        lab::grading::stop(fmt::format(
            "{}: a step is one call of compute_gradients, then one of optimizer.step; here it was "
            "{} (\"update\" is optimizer.step)",
            who, events));
      lab::grading::expect(results[rank].number(entry("rate", step)),
                           {.what = "the learning rate that optimizer.step was given",
                            .values = {c.learning_rate},
                            .tolerance = {1e-8},
                            .name = {},
                            .mistakes = {},
                            .if_not_finite = ""});
      const double loss = results[rank].number(entry("loss", step));
      const double returned = results[rank].number(entry("returned", step));
      if (loss != returned)
        lab::grading::stop(fmt::format(
            "{}: train_step returns {:.7g}, compute_gradients has returned {:.7g}: hand it on as "
            "it is; what all ranks want for the log is mean_loss's business",
            who, loss, returned));
    }
}

/// Each stage scaled by a norm of its own.
Numbers clipped_by_stage(const StepCase& c, const Parts& p, double times) {
  Numbers all;
  for (int s = 0; s < c.grid.pp; ++s) {
    const Numbers own = p.layout.part(p.sum, static_cast<size_t>(s));
    const Numbers part = clipped(own, c.max_norm, times * norm(own));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<MeshMistake> clipping_mistakes(const StepCase& c, const Parts& p) {
  const auto dp = static_cast<size_t>(c.grid.dp);
  const auto everywhere = [dp](const Numbers& whole) { return std::vector<Numbers>(dp, whole); };
  std::vector<MeshMistake> mistakes;
  Numbers averaged = p.sum;
  for (double& value : averaged) value /= static_cast<double>(dp);
  mistakes.push_back({everywhere(clipped(averaged, c.max_norm, norm(averaged))),
                      "the gradients that optimizer.step was given are divided by the number of "
                      "pipelines: compute_gradients has divided by all targets, averaged twice"});
  if (c.max_norm == 0) return mistakes;
  const double length = norm(p.sum);
  const double root = std::sqrt(static_cast<double>(dp));
  mistakes.push_back({everywhere(p.sum),
                      "the gradients are not clipped when the optimizer gets them: call "
                      "lab::clip_gradients behind compute_gradients and before the update"});
  mistakes.push_back({everywhere(clipped_by_stage(c, p, root)),
                      "the gradients are clipped by a norm over the replicas of the stage: it has "
                      "the same weights once for each pipeline, and none of other stages; "
                      "mesh.pipeline holds the whole model, every weight once"});
  mistakes.push_back({everywhere(clipped_by_stage(c, p, 1)),
                      "each stage is clipped by the norm of its own gradients: it is the norm of "
                      "the whole model's that counts; the ranks of mesh.pipeline hold it"});
  mistakes.push_back({everywhere(clipped(p.sum, c.max_norm, root * length)),
                      "the norm is too large: every weight is counted once for each pipeline; "
                      "mesh.pipeline holds the whole model, every weight once"});
  mistakes.push_back({everywhere(clipped(p.sum, c.max_norm / static_cast<double>(dp), length)),
                      "clipped to the max_gradient_norm divided by the number of pipelines: the "
                      "gradients are those of all pipelines already"});
  Numbers unit = p.sum;
  for (double& value : unit) value *= c.max_norm / length;
  mistakes.push_back(
      {everywhere(unit),
       "scaled to max_gradient_norm, although they are shorter: clipping never makes "
       "gradients longer"});
  return mistakes;
}

void expect_update_of(const std::vector<Parcel>& results, const StepCase& c, const Parts& p) {
  const Expected whole{.what = "the gradients that optimizer.step was given",
                       .values = clipped(p.sum, c.max_norm, norm(p.sum)),
                       .tolerance = p.tolerance(),
                       .name = {},
                       .mistakes = {},
                       .if_not_finite = ""};
  expect_on_all_ranks(results, entry("gradients", 0), c.grid, p, whole, [&] {
    std::vector<MeshMistake> mistakes = clipping_mistakes(c, p);
    mistakes.push_back(
        {std::vector<Numbers>(static_cast<size_t>(c.grid.dp), Numbers(p.sum.size(), 0.0)),
         c.max_norm == 0 ? "the gradients that optimizer.step was given are all zero: a "
                           "max_gradient_norm of 0 means not to clip"
                         : "the gradients that optimizer.step was given are all zero"});
    return mistakes;
  });
}

void expect_weights(const std::vector<Parcel>& results, const StepCase& c, const Parts& p) {
  const Parcel one = oracle("one_process", c);
  for (int step = 0; step < c.steps; ++step) {
    const std::string weights = entry("weights", step);
    const Expected whole = [&] {
      Expected expected{
          .what = fmt::format("the weights after step {} of {}", step + 1, c.optimizer),
          .values = lab::grading::to_doubles(one.tensor(weights)),
          .tolerance = p.weights,
          .name = {},
          .mistakes = {},
          .if_not_finite = ""};
      // Judged on the way that they have gone: the weight itself is rounded at every update, and
      // differences grow from step to step.
      double farthest = 0;
      for (size_t i = 0; i < p.weights.size(); ++i)
        farthest = std::max(farthest, std::abs(expected.values[i] - p.weights[i]));
      for (double& tolerance : expected.tolerance)
        tolerance = 2e-7 * std::abs(tolerance) * (step + 1) + 1e-4 * farthest;
      return expected;
    }();
    expect_on_all_ranks(results, weights, c.grid, p, whole, [&] {
      return std::vector<MeshMistake>{
          {std::vector<Numbers>(static_cast<size_t>(c.grid.dp), p.weights),
           "the weights are those of the beginning: no update reached them"}};
    });
    expect_equal_replicas(results, weights, c.grid, "the weights");
    if (c.grid.dp <= 2)
      pipeline_tests::confirm_bits(
          pipeline_tests::joined(pipeline_tests::tensors_of(results, weights)),
          for_all_ranks(whole.values, c.grid), whole.what);
  }
}

/// Those besides compute_gradients'.
void expect_clipping_messages(const std::vector<Parcel>& results, const StepCase& c) {
  for (size_t rank = 0; rank < results.size(); ++rank)
    for (int step = 0; step < c.steps; ++step) {
      double bytes = 0;
      for (const Operation& operation : operations(results[rank], entry("operations", step))) {
        bytes += operation.bytes;
        if (c.max_norm == 0)
          lab::grading::stop(fmt::format(
              "{}: the numbers are right, but besides compute_gradients it takes a {}: without "
              "clipping there is nothing to send",
              c.grid.name(rank), in_words(operation)));
      }
      if (bytes > kMostClippingBytes)
        lab::grading::stop(fmt::format(
            "{}: the numbers are right, but besides compute_gradients {} bytes travel: the norm is "
            "all that clipping needs, and weights and optimizer state need no message",
            c.grid.name(rank), bytes));
    }
}

void expect_training(const StepCase& c, GroupOptions options) {
  options.functions = Functions::kGiven;
  const std::vector<Parcel> results =
      lab::grading::student_group("train_step", c.inputs(), options);
  const Parts p(c);
  expect_course(results, c);
  expect_update_of(results, c, p);
  expect_weights(results, c, p);
  expect_clipping_messages(results, c);
}

/// With clipping to `fraction` of the norm.
StepCase clipping(StepCase c, double fraction) {
  c.max_norm = fraction * norm(Parts(c).sum);
  return c;
}

TEST(Task6, SeveralStepsWithSgd) { expect_training({.grid = {2, 3}, .steps = 3}, late(61)); }

TEST(Task6, SeveralStepsWithAdam) {
  const StepCase c{
      .grid = {2, 3}, .unequal = true, .optimizer = "adam", .steps = 3, .learning_rate = 0.01};
  expect_training(clipping(c, 0.5), late(62));
}

TEST(Task6, ClipsTheWholeModelsNorm) {
  expect_training(clipping({.grid = {2, 3}, .wave = 2, .waves = 2}, 0.5), late(63));
}

// Shorter than the bound, though longer if every weight counted twice.
TEST(Task6, ShortGradientsAreNotClipped) {
  expect_training(clipping({.grid = {2, 2}, .wave = 2}, 1.1), late(64));
}

TEST(Task6, ThreePipelines) {
  StepCase c{.grid = {3, 2}, .schedule = "gpipe", .wave = 2, .unequal = true, .steps = 2};
  expect_training(clipping(c, 0.5), late(65));
}

TEST(Task6, OnePipeline) { expect_training(clipping({.grid = {1, 3}}, 0.5), late(66)); }

TEST(Task6, PipelinesOfOneStage) {
  expect_training(clipping({.grid = {2, 1}, .wave = 2, .steps = 2}, 0.5), late(67));
}

TEST(Task6, OverGloo) {
  const StepCase c{
      .grid = {2, 3}, .waves = 2, .optimizer = "adam", .steps = 2, .learning_rate = 0.01};
  expect_training(clipping(c, 0.5), over_gloo());
}

}  // namespace
}  // namespace lab06
