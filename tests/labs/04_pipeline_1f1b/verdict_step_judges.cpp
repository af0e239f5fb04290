// Judging calls, losses and weights of train_step.
#include "tests/labs/04_pipeline_1f1b/verdict_step_judges.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "tests/labs/04_pipeline_1f1b/verdict_passes.h"
#include "tests/labs/pipeline/every_rank.h"
#include "tests/labs/pipeline/same_bits.h"

namespace lab04 {
namespace {

using lab::grading::Expected;
using lab::grading::Parcel;
using lab::grading::stop;

std::string entry(const char* name, int step) { return fmt::format("{}.{}", name, step); }

void expect_update_at_the_end(const std::string& events, size_t rank) {
  const size_t update = events.find("update");
  const size_t backward = events.find("backward");
  if (backward != std::string::npos && update < backward)
    stop(
        fmt::format("rank {}: the optimizer stepped before the backward pass: the gradients that "
                    "it got are not those of this batch",
                    rank));
}

}  // namespace

void expect_one_update(const std::vector<Parcel>& results, const StepCase& c) {
  for (size_t rank = 0; rank < results.size(); ++rank)
    for (int step = 0; step < c.steps; ++step) {
      const double updates = results[rank].number(entry("updates", step));
      if (updates == 0)
        stop(
            fmt::format("rank {}: the weights are not updated: optimizer.step was never called. "
                        "Every stage updates its own weights",
                        rank));
      if (updates > 1)
        stop(
            fmt::format("rank {}: one step of training is one update: optimizer.step was called "
                        "{} times",
                        rank, updates));
      expect_update_at_the_end(results[rank].text(entry("events", step)), rank);
      lab::grading::expect(results[rank].number(entry("rate", step)),
                           {.what = "the learning rate that optimizer.step was given",
                            .values = {c.learning_rate},
                            .tolerance = {1e-8},
                            .name = {},
                            .mistakes = {},
                            .if_not_finite = ""});
    }
}

void expect_one_loss(const std::vector<Parcel>& results, const StepCase& c) {
  const size_t last = results.size() - 1;  // on other ranks a call is an error already
  for (int step = 0; step < c.steps; ++step) {
    const Numbers totals = results[last].numbers(entry("totals", step));
    if (totals.size() != 1)
      stop(fmt::format("rank {}, the last stage, calls loss {} times in a step: it should be once",
                       last, totals.size()));
  }
}

Divisor::Divisor(const std::vector<Parcel>& results, const StepCase& c, int step)
    : got(results.back().numbers(entry("totals", step))[0]),
      right(static_cast<double>(c.batch(step).target_count())) {
  if (got == right) return;
  const lab::TokenBatch batch = c.batch(step);
  const auto positions = static_cast<double>(batch.batch * batch.length);
  const auto unpadded = static_cast<double>(batch.batch * (batch.length - 1));
  words = fmt::format(
      "loss was given {} as total_targets, the batch has {}: {}", got, right,
      got == positions || got == unpadded
          ? "the first token of a row is no target, and padding is none; batch.target_count() knows"
          : "batch.target_count() knows");
}

void expect_losses(const std::vector<Parcel>& results, const StepOracle& oracle,
                   const StepCase& c) {
  for (int step = 0; step < c.steps; ++step) {
    const double right = oracle.parcel.number(entry("loss", step));
    const Divisor divisor(results, c, step);
    for (size_t rank = 0; rank < results.size(); ++rank) {
      const double got = results[rank].number(entry("loss", step));
      const bool last = rank + 1 == results.size();
      if (!last && got != 0)
        stop(
            fmt::format("rank {} returns a loss of {:.6g}: only the last stage has one; the "
                        "others return 0",
                        rank, got));
      if (!last) continue;
      Expected expected{
          .what = fmt::format("the loss that rank {} returns", rank),
          .values = {right},
          .tolerance = {kTolerance * right * (step > 0 ? 100 : 1)},
          .name = {},
          .mistakes = {{{0}, "the last stage returns a loss of 0: return what loss returned"}},
          .if_not_finite = ""};
      if (!divisor.words.empty())
        expected.mistakes.push_back(
            {{right * divisor.factor()}, fmt::format("{}: {}", expected.what, divisor.words)});
      lab::grading::expect(got, expected);
    }
  }
}

void expect_displacement(const std::vector<Parcel>& results, const StepOracle& oracle,
                         const StepCase& c) {
  const Numbers start = oracle.whole("start");
  const auto moved = [&](Numbers weights, size_t rank) {
    const Numbers own = oracle.layout.part(start, rank);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] -= own[i];
    return weights;
  };
  for (int step = 0; step < c.steps; ++step) {
    std::vector<Numbers> got = pipeline_tests::tensors_of(results, entry("weights", step));
    for (size_t rank = 0; rank < got.size(); ++rank) got[rank] = moved(got[rank], rank);
    const Numbers right = oracle.whole(entry("weights", step));
    const auto expected_change = [&](size_t rank) {
      Expected expected{.what = fmt::format("the change of the weights after step {}", step + 1),
                        .values = moved(oracle.layout.part(right, rank), rank),
                        .tolerance = oracle.layout.part(start, rank),
                        .name = [&, rank](size_t i) { return oracle.layout.name(rank, i); },
                        .mistakes = {},
                        .if_not_finite = ""};
      // The weight itself is rounded at every update; differences grow from step to step, and where
      // Adam divides by a small gradient, which is mostly rounding.
      const double allowed =
          (c.optimizer == "adam" ? 1e-3 : 1e-4) * lab::grading::largest_magnitude(expected.values);
      for (double& tolerance : expected.tolerance)
        tolerance = 2e-7 * std::abs(tolerance) * (step + 1) + allowed;
      return expected;
    };
    pipeline_tests::expect_on_every_rank(got, pipeline_tests::Blame::kFromTheLast, expected_change);
  }
}

void confirm_step_bits(const std::vector<Parcel>& results, const StepOracle& oracle,
                       const StepCase& c) {
  for (int step = 0; step < c.steps; ++step) {
    pipeline_tests::confirm_bits({results.back().number(entry("loss", step))},
                                 {oracle.parcel.number(entry("loss", step))}, entry("loss", step));
    for (const char* name : {"gradients", "weights"}) {
      const std::string tensor = entry(name, step);
      pipeline_tests::confirm_bits(
          pipeline_tests::joined(pipeline_tests::tensors_of(results, tensor)), oracle.whole(tensor),
          tensor);
    }
  }
}

}  // namespace lab04
